//! Http: a file over HTTP, whole or in ranges, served by axum. The body is the frames themselves, as a stream of `Bytes`.
//!
//! `cargo run --release -p headwater --example http -- video.mp4 127.0.0.1:8080`

use std::future::ready;
use std::io;
use std::ops::Range;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;
use futures_util::StreamExt;
use headwater::File;
use tokio::net::TcpListener;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().ok_or_else(|| io::Error::other("usage: http FILE [ADDRESS]"))?;
    let address = arguments.next().map_or(Ok("127.0.0.1:8080".into()), |address| address.into_string());
    let address = address.map_err(|address| io::Error::other(format!("{address:?} is no address")))?;
    let file = File::open(path)?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind(address).await?;
        println!("http://{}", listener.local_addr()?);
        axum::serve(listener, router(file)).await
    })
}

fn router(file: File) -> Router {
    Router::new().route("/", get(serve)).with_state(file)
}

async fn serve(State(file): State<File>, headers: HeaderMap) -> Result<Response<Body>, (StatusCode, String)> {
    let failed = |error: headwater::Error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let length_bytes = file.len().map_err(failed)?;
    let wanted = headers.get(header::RANGE).and_then(|range| range.to_str().ok()?.strip_prefix("bytes="));
    let response = Response::builder().header(header::ACCEPT_RANGES, "bytes");
    let (response, range) = match wanted {
        // Several ranges, which a server may ignore, are the whole file.
        None => (response, 0..length_bytes),
        Some(ranges) if ranges.contains(',') => (response, 0..length_bytes),
        Some(range) => match parse(range, length_bytes) {
            Some(range) => {
                let shown = format!("bytes {}-{}/{length_bytes}", range.start, range.end - 1);
                let partial = response.status(StatusCode::PARTIAL_CONTENT);
                (partial.header(header::CONTENT_RANGE, shown), range)
            }
            None => {
                let refused = response.status(StatusCode::RANGE_NOT_SATISFIABLE);
                let refused = refused.header(header::CONTENT_RANGE, format!("bytes */{length_bytes}"));
                return Ok(refused.body(Body::empty()).expect("the headers are valid"));
            }
        },
    };
    let response = response.header(header::CONTENT_LENGTH, range.end - range.start);
    Ok(response.body(Body::from_stream(bytes_of(&file, range))).expect("the headers are valid"))
}

/// A range as of RFC 9110: from byte to byte, both included, from a byte on, or the last so many. `None` if the file has no such bytes.
fn parse(range: &str, length_bytes: u64) -> Option<Range<u64>> {
    let (first, last) = range.split_once('-')?;
    let range = match (first, last) {
        ("", last) => length_bytes.saturating_sub(last.parse().ok()?)..length_bytes,
        (first, "") => first.parse().ok()?..length_bytes,
        (first, last) => first.parse().ok()?..last.parse::<u64>().ok()?.saturating_add(1).min(length_bytes),
    };
    (!range.is_empty()).then_some(range)
}

/// Shorter than the range only if the file is by then.
fn bytes_of(
    file: &File,
    range: Range<u64>,
) -> impl futures_util::Stream<Item = io::Result<bytes::Bytes>> + use<> {
    let stream = file.async_reader().starting_at(range.start).into_stream();
    stream.scan(range.end - range.start, |left_bytes, chunk| {
        ready((*left_bytes > 0).then(|| {
            chunk.map(|mut bytes| {
                bytes.truncate(usize::try_from(*left_bytes).unwrap_or(usize::MAX));
                *left_bytes -= bytes.len() as u64;
                bytes
            })
        }))
    })
}

#[tokio::test]
async fn ranges_are_served() -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let directory = tempfile::tempdir()?;
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    std::fs::write(&path, &bytes)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let file = File::open(&path)?;
    tokio::spawn(async move { axum::serve(listener, router(file)).await });
    let answer = async |range: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{range}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("the headers end");
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        io::Result::Ok((head, answer.split_off(end + 4)))
    };
    let (head, body) = answer("").await?;
    assert!(head.starts_with("http/1.1 200") && body == bytes, "{head}");
    for (asked, expected) in [
        ("10-19", 10..20),
        ("1000000-2999998", 1_000_000..2_999_999),
        ("2999990-9999999", 2_999_990..3_000_000),
        ("2000000-", 2_000_000..3_000_000),
        ("-5", 2_999_995..3_000_000),
    ] {
        let (head, body) = answer(&format!("Range: bytes={asked}\r\n")).await?;
        assert!(head.starts_with("http/1.1 206") && body == bytes[expected.clone()], "{asked}: {head}");
        let shown = format!("content-range: bytes {}-{}/3000000", expected.start, expected.end - 1);
        assert!(head.contains(&shown), "{head}");
    }
    for nothing in ["3000000-", "20-10", "x-", "-0"] {
        let (head, body) = answer(&format!("Range: bytes={nothing}\r\n")).await?;
        assert!(head.starts_with("http/1.1 416") && body.is_empty(), "{nothing}: {head}");
    }
    Ok(())
}
