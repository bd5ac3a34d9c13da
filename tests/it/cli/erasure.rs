//! `perdiem erase`.

use crate::support::app::{App, Stack};
use crate::support::command_line::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_is_erased_once_somebody_says_yes() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "Asia/Shanghai").await;
    app.claim("member-42", None).await.is(201);
    let line = "erase member-42 --reason request";
    let fault = command(&app, line).await.fault();
    assert!(fault.contains("--yes"), "{fault}");
    assert_eq!(
        crate::http::all_items(&app, "/v1/grants?subject=member-42")
            .await
            .len(),
        1
    );
    let told = command(&app, &format!("{line} --yes")).await.well(0);
    assert!(told.starts_with("erased at "), "{told}");
    assert!(told.contains(" under 1 policy: change "), "{told}");
    assert!(
        crate::http::all_items(&app, "/v1/grants?subject=member-42")
            .await
            .is_empty()
    );
    let erased = command(&app, &format!("{line} --yes --json")).await.json(0);
    assert_eq!(erased["accounts"], 1);
    let fault = command(&app, "erase nobody --reason request --yes")
        .await
        .fault();
    assert!(
        fault.contains("nothing is known about this subject"),
        "{fault}"
    );
}
