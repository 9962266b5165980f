//! Writes an order and submits the job for its invoice in one transaction: both exist, or neither does. With `tokio-postgres`.

use tokio_postgres::{Client, Error};

/// Returns the id of the job. `schema` is where jobtree's tables are.
pub async fn order(client: &mut Client, schema: &str, item: &str) -> Result<String, Error> {
    let transaction = client.transaction().await?;
    let insert = "INSERT INTO orders (item) VALUES ($1) RETURNING id";
    let number: i32 = transaction.query_one(insert, &[&item]).await?.get(0);
    let job = serde_json::json!({
        "addon_id": "shop",
        "job_type": "invoice",
        "cost_units": 5,
        "payload": { "order": number },
        // A program that does not know whether its commit went through may do it again.
        "idempotency_key": format!("invoice-{number}"),
    });
    let submit = format!("SELECT \"{schema}\".jobtree_submit($1::text::json)::text");
    let job_id = transaction.query_one(&submit, &[&job.to_string()]).await?;
    if item == "nothing" {
        // The transaction is rolled back, and the job of the order of nothing with it.
        transaction.rollback().await?;
        return Ok(String::new());
    }
    transaction.commit().await?;
    Ok(job_id.get(0))
}
