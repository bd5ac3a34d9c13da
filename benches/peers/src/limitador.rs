//! A peer of perdiem: the crate `limitador` behind a minimal HTTP server, with its counters in
//! Redis or in memory. It accepts the same requests as perdiem, and records nothing.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::web::{Data, Json};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use clap::Parser;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::AsyncRedisStorage;
use limitador::{AsyncRateLimiter, RateLimiter};
use serde::Deserialize;

type Failure = Box<dyn std::error::Error>;

const NAMESPACE: &str = "benefit";
const DAY_SECONDS: u64 = 86_400;
/// More subjects than any measurement has, so that no subject is forgotten.
const SUBJECTS_IN_MEMORY: u64 = 10_000_000;

#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// The Redis of the counters; without it, they are in memory
    #[arg(long)]
    redis_url: Option<String>,
    /// The secret of the bearer key
    #[arg(long, env = "PEER_SECRET")]
    secret: String,
    /// The claims that each subject may make in a day
    #[arg(long, default_value_t = 3)]
    max: u64,
    /// Open a connection to Redis for each worker. Without it all workers share one connection, as
    /// in Limitador's own server
    #[arg(long)]
    connection_a_worker: bool,
}

enum Limiter {
    Redis(AsyncRateLimiter),
    Memory(RateLimiter),
}

impl Limiter {
    async fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let subject = "subject".try_into()?;
        let limit = Limit::new(NAMESPACE, arguments.max, DAY_SECONDS, Vec::new(), [subject]);
        Ok(match &arguments.redis_url {
            Some(url) => {
                let storage = AsyncRedisStorage::new(url).await?;
                let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
                limiter.add_limit(limit);
                Self::Redis(limiter)
            }
            None => {
                let limiter = RateLimiter::new(SUBJECTS_IN_MEMORY);
                limiter.add_limit(limit);
                Self::Memory(limiter)
            }
        })
    }
}

/// The state of a worker.
struct Peer {
    limiter: Arc<Limiter>,
    namespace: Namespace,
    authorization: String,
}

impl Peer {
    async fn open(arguments: Arguments, shared: Option<Arc<Limiter>>) -> Result<Self, Failure> {
        let limiter = match shared {
            Some(limiter) => limiter,
            None => Arc::new(Limiter::open(&arguments).await?),
        };
        Ok(Self {
            limiter,
            namespace: NAMESPACE.into(),
            authorization: format!("Bearer {}", arguments.secret),
        })
    }
}

#[derive(Deserialize)]
struct ClaimBody {
    subject: String,
    units: Option<u64>,
}

async fn claim(request: HttpRequest, body: Json<ClaimBody>, peer: Data<Peer>) -> HttpResponse {
    let header = |name| request.headers().get(name).map(|value| value.as_bytes());
    if header("authorization") != Some(peer.authorization.as_bytes()) {
        return HttpResponse::Unauthorized().finish();
    }
    if header("idempotency-key").is_none() {
        return HttpResponse::BadRequest().finish();
    }
    let ClaimBody { subject, units } = body.into_inner();
    let context = Context::from(HashMap::from([("subject".to_owned(), subject)]));
    let units = units.unwrap_or(1);
    let checked = match &*peer.limiter {
        Limiter::Redis(limiter) => {
            let check = limiter.check_rate_limited_and_update(&peer.namespace, &context, units);
            check.await
        }
        Limiter::Memory(limiter) => {
            limiter.check_rate_limited_and_update(&peer.namespace, &context, units)
        }
    };
    match checked {
        Ok(checked) if checked.limited => HttpResponse::TooManyRequests().finish(),
        Ok(_) => HttpResponse::Created().json(serde_json::json!({"outcome": "granted"})),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}

#[actix_web::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let shared = if arguments.connection_a_worker {None} else {Some(Arc::new(Limiter::open(&arguments).await?))};
    let server = HttpServer::new(move || {
        let arguments = arguments.clone();
let shared = shared.clone();
        App::new()
            .data_factory(move || Peer::open(arguments.clone(), shared.clone()))
            .route("/v1/policies/benefit/claims", web::post().to(claim))
    })
    .keep_alive(std::time::Duration::from_secs(75))
    .bind(("127.0.0.1", 0))?;
    for address in server.addrs() {
        println!("serves at http://{address}");
    }
    server.run().await?;
    Ok(())
}
