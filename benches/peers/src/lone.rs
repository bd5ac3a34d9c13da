//! What a lone claim costs at least: one call to Redis and then one committed insert, done bare,
//! one after the other. Tells in one line of JSON how long that took.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use postgres::{Client, NoTls};
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

#[derive(Debug, Parser)]
struct Arguments {
    /// The database's URL
    #[arg(long)]
    postgres: String,
    /// A statement that takes two texts: digits that go up, and digits at random
    #[arg(long)]
    insert: String,
    /// Redis' host and port
    #[arg(long)]
    redis: String,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// What the digits that go up begin after
    #[arg(long)]
    first: u64,
    /// What Redis is told; `__rand_int__` becomes digits that go up
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let mut postgres = Client::connect(&arguments.postgres, NoTls)?;
    let insert = postgres.prepare(&arguments.insert)?;
    let redis = TcpStream::connect(&arguments.redis)?;
    redis.set_nodelay(true)?;
    let mut redis = BufReader::new(redis);
    let mut redis_times = Histogram::<u64>::new(3)?;
    let mut times = Histogram::<u64>::new(3)?;

    let end = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let mut number = 0_u64;
    while Instant::now() < end {
        number += 1;
        let place = (arguments.first + number).to_string();
        let any = scramble(arguments.first + number).to_string();
        let began = Instant::now();
        call(&mut redis, &arguments.command, &place)?;
        redis_times.record(nanoseconds(began))?;
        postgres.execute(&insert, &[&place, &any])?;
        times.record(nanoseconds(began))?;
    }
    let answer = json!({
        "times": number,
        "p50_us": microseconds(&times, 0.5),
        "p99_us": microseconds(&times, 0.99),
        "p999_us": microseconds(&times, 0.999),
        "redis_p50_us": microseconds(&redis_times, 0.5),
    });
    println!("{answer}");
    Ok(())
}

fn nanoseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn microseconds(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1000.0
}

/// Digits that look random: the last step of splitmix64, by Sebastiano Vigna.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// One command and its answer, which must not be an error.
fn call(redis: &mut BufReader<TcpStream>, command: &[String], place: &str) -> Result<(), Failure> {
    let mut request = format!("*{}\r\n", command.len());
    for argument in command {
        let argument = argument.replace("__rand_int__", place);
        request += &format!("${}\r\n{argument}\r\n", argument.len());
    }
    redis.get_mut().write_all(request.as_bytes())?;
    skip_answer(redis)
}

fn skip_answer(redis: &mut BufReader<TcpStream>) -> Result<(), Failure> {
    let mut line = String::new();
    redis.read_line(&mut line)?;
    let rest = line.get(1..).unwrap_or("").trim_end();
    match line.chars().next() {
        Some('+' | ':') => Ok(()),
        Some('$') if rest != "-1" => {
            let mut bytes = vec![0; rest.parse::<usize>()? + 2];
            redis.read_exact(&mut bytes)?;
            Ok(())
        }
        Some('*') if rest != "-1" => {
            for _ in 0..rest.parse::<usize>()? {
                skip_answer(redis)?;
            }
            Ok(())
        }
        Some('$' | '*') => Ok(()),
        _ => Err(format!("Redis said: {line}").into()),
    }
}
