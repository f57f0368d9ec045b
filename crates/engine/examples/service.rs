//! Service: ranges of a file over TCP, for 64 connections on tokio.
//!
//! With headwater a read is awaited where it is asked for; the plain form moves each to a thread for blocking calls.
//!
//! `cargo run --release -p headwater --example service`

mod programs;

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use programs::{Form, Program, mixed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PROGRAM: Program = Program { name: "service", unit: "ranges", units: 64_000, prepare, run };

fn main() -> io::Result<()> {
    PROGRAM.main()
}

fn prepare(directory: &Path, _: usize) -> io::Result<()> {
    let words: Vec<u8> = (0..FILE_BYTES / 8).flat_map(|number| mixed(number).to_le_bytes()).collect();
    let file = std::fs::File::create(directory.join("file"))?;
    io::Write::write_all(&mut &file, &words)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(io::Error::from)
}

enum Source {
    Headwater(headwater::File),
    Std(Arc<std::fs::File>),
}

impl Source {
    async fn read(&self, offset_bytes: u64, length: usize) -> io::Result<Bytes> {
        match self {
            Source::Headwater(file) => Ok(file.read_at_async(offset_bytes, length).await?),
            Source::Std(file) => {
                let file = file.clone();
                let read = move || {
                    let mut bytes = vec![0; length];
                    file.read_exact_at(&mut bytes, offset_bytes)?;
                    Ok(bytes.into())
                };
                tokio::task::spawn_blocking(read).await?
            }
        }
    }
}

/// The first words of all answers, summed.
fn run(form: Form, directory: &Path, ranges: usize) -> io::Result<u64> {
    let path = directory.join("file");
    let source = match form {
        Form::Headwater => Source::Headwater(headwater::File::open(&path)?),
        Form::Std => Source::Std(Arc::new(std::fs::File::open(&path)?)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let (listener, source) = (TcpListener::bind("127.0.0.1:0").await?, Arc::new(source));
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, source.clone()));
            }
        });
        let clients = (0..CLIENTS).map(|client| {
            tokio::spawn(
                async move { ask(TcpStream::connect(address).await?, client, ranges / CLIENTS).await },
            )
        });
        let mut sum = 0_u64;
        for client in clients.collect::<Vec<_>>() {
            sum = sum.wrapping_add(client.await??);
        }
        serving.abort();
        Ok(sum)
    })
}

/// Requests are an offset; answers are [`RANGE_BYTES`] from there on.
async fn serve(mut stream: TcpStream, source: Arc<Source>) -> io::Result<()> {
    loop {
        let offset_bytes = stream.read_u64().await?;
        let bytes = source.read(offset_bytes, RANGE_BYTES).await?;
        stream.write_all(&bytes).await?;
    }
}

async fn ask(mut stream: TcpStream, client: usize, ranges: usize) -> io::Result<u64> {
    stream.set_nodelay(true)?;
    let (mut sum, mut answer) = (0_u64, vec![0; RANGE_BYTES]);
    for number in 0..ranges {
        let range = mixed((client * ranges + number) as u64) % (FILE_BYTES / RANGE_BYTES as u64);
        stream.write_u64(range * RANGE_BYTES as u64).await?;
        stream.read_exact(&mut answer).await?;
        sum = sum.wrapping_add(answer.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    }
    Ok(sum)
}

const FILE_BYTES: u64 = 128 << 20;

const RANGE_BYTES: usize = 16 << 10;

const CLIENTS: usize = 64;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 128);
}
