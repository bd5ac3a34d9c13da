//! The stores with counters, where Redis may decide alone.

/// Makes one test for each store with counters out of each scenario: `async fn name(stack: Stack)`.
macro_rules! on_every_counted_store {
    ($($scenario:ident),* $(,)?) => {
        $(
            mod $scenario {
                use crate::support::app::Stack;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn redis_and_sqlite() {
                    super::$scenario(Stack::RedisAndSqlite).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn redis_and_postgres() {
                    super::$scenario(Stack::RedisAndPostgres).await;
                }
            }
        )*
    };
}
pub(crate) use on_every_counted_store;
