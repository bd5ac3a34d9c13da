//! A route that does nothing: it reads a claim, and sends an answer that perdiem gave once. It
//! measures the cost of HTTP with these bytes, in the same framework.

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Bytes, Data};
use actix_web::{App, HttpResponse, HttpServer, web};
use clap::Parser;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
struct Arguments {
    /// A field of the answer's head, as `name: value`
    #[arg(long, value_parser = read_field)]
    field: Vec<(HeaderName, HeaderValue)>,
    /// The answer's body
    #[arg(long)]
    body: String,
}

fn read_field(text: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let (name, value) = text.split_once(": ").ok_or("no colon")?;
    Ok((name.parse()?, value.parse()?))
}

struct Answer {
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

async fn claim(_claim: Bytes, answer: Data<Answer>) -> HttpResponse {
    let mut response = HttpResponse::Created();
    for field in &answer.fields {
        response.insert_header(field.clone());
    }
    response.body(answer.body.clone())
}

#[actix_web::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let answer = Data::new(Answer {
        fields: arguments.field,
        body: arguments.body.into(),
    });
    let server = HttpServer::new(move || {
        App::new()
            .app_data(answer.clone())
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
