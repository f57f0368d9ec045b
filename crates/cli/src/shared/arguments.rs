//! Arguments: options of several commands.
//!
//! Owns: the options that configure an engine, and passing them on to a child process.
//! Does not own: the commands' own options.

use std::ffi::OsStr;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Args, ValueEnum};
use headwater::testing::Limits;
use headwater::{DriverKind, Engine, EngineBuilder, IoMode};

use crate::shared::units::ByteSize;

#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArguments {
    /// The most memory that readahead may use.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_memory)]
    pub(crate) memory: ByteSize,
    #[command(flatten)]
    pub(crate) queue: QueueArguments,
}

impl Default for EngineArguments {
    fn default() -> Self {
        EngineArguments { memory: ByteSize(32 << 20), queue: QueueArguments::default() }
    }
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct QueueArguments {
    /// How I/O requests are submitted to the kernel.
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    pub(crate) driver: DriverChoice,
    /// The most requests in flight at a time [default: 128; cp: 32; scan: 64].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=Limits::QUEUE_DEPTH_MAX as i64))]
    pub(crate) queue_depth: Option<u32>,
}

impl QueueArguments {
    /// A builder with the default memory budget.
    pub(crate) fn builder(&self) -> EngineBuilder {
        let builder = Engine::builder().driver(self.driver.kind());
        match self.queue_depth {
            Some(depth) => builder.queue_depth(depth),
            None => builder,
        }
    }

    /// Why requests do not go through io_uring.
    pub(crate) fn uring_refusal(&self) -> Option<String> {
        match self.driver {
            DriverChoice::Threads => Some("requests go through threads, as asked for".to_owned()),
            DriverChoice::Auto | DriverChoice::Uring => headwater::testing::uring_refusal(),
        }
    }
}

impl EngineArguments {
    pub(crate) fn builder(&self) -> EngineBuilder {
        self.queue.builder().memory(self.memory.0)
    }

    /// These options as arguments for a child process.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let driver = name_of(self.queue.driver);
        let mut arguments = vec!["--memory".into(), self.memory.0.to_string(), "--driver".into(), driver];
        if let Some(depth) = self.queue.queue_depth {
            arguments.extend(["--queue-depth".into(), depth.to_string()]);
        }
        arguments
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum IoChoice {
    /// Cached bytes from the kernel's page cache, the rest directly from the device.
    #[default]
    Auto,
    /// All bytes directly from the device, bypassing the page cache (O_DIRECT).
    Direct,
    /// All bytes through the page cache.
    Buffered,
}

impl IoChoice {
    pub(crate) fn mode(self) -> IoMode {
        match self {
            IoChoice::Auto => IoMode::Auto,
            IoChoice::Direct => IoMode::Direct,
            IoChoice::Buffered => IoMode::Buffered,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum DriverChoice {
    /// io_uring where the system allows it, else threads; HEADWATER_DRIVER, if set, chooses instead.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// A small pool of threads that make blocking calls.
    Threads,
}

impl DriverChoice {
    pub(crate) fn kind(self) -> DriverKind {
        match self {
            DriverChoice::Auto => DriverKind::Auto,
            DriverChoice::Uring => DriverKind::Uring,
            DriverChoice::Threads => DriverKind::Threads,
        }
    }
}

/// Takes values by as many of their first letters as tell them apart, as GNU commands do: `--sparse=alw`.
#[derive(Clone)]
pub(crate) struct Shortened<Value: ValueEnum + Clone + Send + Sync + 'static>(EnumValueParser<Value>);

/// The parser of an option with these values.
pub(crate) fn shortened<Value: ValueEnum + Clone + Send + Sync + 'static>() -> Shortened<Value> {
    Shortened(EnumValueParser::new())
}

impl<Value: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for Shortened<Value> {
    type Value = Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Value, clap::Error> {
        let whole = value.to_str().and_then(only_with_prefix::<Value>);
        self.0.parse_ref(command, argument, whole.as_deref().map_or(value, OsStr::new))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// The name of the only value that begins so; what is a name itself, or begins none or several, is left to clap.
fn only_with_prefix<Value: ValueEnum>(text: &str) -> Option<String> {
    let names = Value::value_variants().iter().filter_map(Value::to_possible_value);
    let names = names.filter(|value| !value.is_hide_set());
    let mut names = names.map(|value| value.get_name().to_owned()).filter(|name| name.starts_with(text));
    let name = names.next().filter(|_| !text.is_empty())?;
    names.next().is_none().then_some(name)
}

/// The name of a value on the command line.
pub(crate) fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is hidden").get_name().to_owned()
}

fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if size.0 < Limits::MEMORY_BYTES_MIN {
        return Err(format!("headwater needs at least {}", ByteSize(Limits::MEMORY_BYTES_MIN)));
    }
    if size.0 > Limits::MEMORY_BYTES_MAX {
        return Err(format!("headwater manages {} at most", ByteSize(Limits::MEMORY_BYTES_MAX)));
    }
    Ok(size)
}
