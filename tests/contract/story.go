// Uses the API as a backend would, with the client that openapi-generator makes for Go.
//
// scripts/check-clients generated runs this against a new perdiem at PERDIEM_URL, with an admin's PERDIEM_KEY.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"perdiem"
)

var ctx = context.WithValue(context.Background(), perdiem.ContextAccessToken, os.Getenv("PERDIEM_KEY"))

// must ends the program where something is not as openapi.yaml says.
func must(isSo bool, what string, found any) {
	if !isSo {
		panic(fmt.Sprintf("%s: %+v", what, found))
	}
}

// answered checks the status of an answer that is no problem.
func answered(status int, response *http.Response, err error) {
	must(err == nil && response.StatusCode == status, fmt.Sprintf("status %d", status), err)
}

func main() {
	settings := perdiem.NewConfiguration()
	settings.Servers = perdiem.ServerConfigurations{{URL: os.Getenv("PERDIEM_URL")}}
	client := perdiem.NewAPIClient(settings)
	claim := func(key string, body *perdiem.ClaimBody) (*perdiem.ClaimAnswer, *http.Response, error) {
		return client.ClaimsAPI.Claim(ctx, "benefit").IdempotencyKey(key).ClaimBody(*body).Execute()
	}

	// It is noon in this zone, so that no day ends during the run.
	zone := fmt.Sprintf("%+03d:00", 12-time.Now().UTC().Hour())
	limits := []perdiem.LimitBody{*perdiem.NewLimitBody(3, "day")}
	policy := perdiem.NewPolicyBody(limits, zone)
	made, response, err := client.PoliciesAPI.PutPolicy(ctx, "benefit").PolicyBody(*policy).Execute()
	answered(201, response, err)
	must(made.Version == 1 && made.Mode == perdiem.MODE_ENFORCE, "the policy", made)

	// A claim, and its retry.
	body := perdiem.NewClaimBody("member-42")
	first, response, err := claim("order-1", body)
	answered(201, response, err)
	must(first.Outcome == perdiem.CLAIMOUTCOME_GRANTED && first.Limits[0].Used == 1, "the claim", first)
	again, response, err := claim("order-1", body)
	answered(200, response, err)
	must(response.Header.Get("Idempotent-Replayed") == "true" && again.Grant.Id == first.Grant.Id, "the retry", again)

	// A denial, which `code` tells from the other problem with this status.
	more := perdiem.NewClaimBody("member-42")
	more.SetUnits(3)
	_, response, err = claim("order-2", more)
	var refused *perdiem.GenericOpenAPIError
	must(errors.As(err, &refused) && response.StatusCode == 429, "the denial", err)
	denial := refused.Model().(perdiem.ClaimRefusal).DenialBody
	must(denial != nil && denial.Code == perdiem.QUOTAEXCEEDED_QUOTA_EXCEEDED, "the denial", refused.Model())
	must(denial.ViolatedPolicies[0] == "day" && denial.FitsAt.Get() != nil, "the denial", denial)

	// A problem that every operation can have.
	_, response, err = client.ClaimsAPI.Claim(ctx, "nowhere").ClaimBody(*body).Execute()
	must(errors.As(err, &refused) && response.StatusCode == 404, "the problem", err)
	must(refused.Model().(perdiem.Problem).Code == perdiem.PROBLEMCODE_UNKNOWN_POLICY, "the problem", refused.Model())

	// A hold, and its confirmation. For a body that is left out, the client would send `null`.
	body.SetHoldSeconds(600)
	hold, response, err := claim("order-3", body)
	answered(201, response, err)
	must(hold.Grant.State == perdiem.GRANTSTATE_HELD, "the hold", hold)
	whole := *perdiem.NewConfirmationRequest()
	confirmed, response, err := client.GrantsAPI.ConfirmGrant(ctx, hold.Grant.Id).ConfirmationRequest(whole).Execute()
	answered(201, response, err)
	must(confirmed.Grant.State == perdiem.GRANTSTATE_GRANTED && confirmed.Limits[0].Used == 2, "the confirmation", confirmed)

	// A batch of a claim that is granted, one that is denied, and one that is refused.
	third := perdiem.NewBatchClaim("benefit", "member-42")
	third.SetUnits(2)
	batch := perdiem.NewBatchBody([]perdiem.BatchClaim{
		*perdiem.NewBatchClaim("benefit", "member-1"), *third, *perdiem.NewBatchClaim("nowhere", "member-1"),
	})
	answers, response, err := client.ClaimsAPI.ClaimBatch(ctx).BatchBody(*batch).IdempotencyKey("batch-1").Execute()
	answered(200, response, err)
	granted, denied, unknown := answers.Items[0], answers.Items[1], answers.Items[2]
	must(granted.GrantedItem != nil && granted.GrantedItem.Status == 201, "the first item", granted)
	must(denied.DenialBody != nil && denied.DenialBody.Status == 429, "the second item", denied)
	must(unknown.Problem != nil && unknown.Problem.Status == 404, "the third item", unknown)

	// A reversal, once.
	for _, status := range []int{201, 200} {
		reason := perdiem.NewReversalRequest("SMS gateway refused")
		reversed, response, err := client.GrantsAPI.ReverseGrant(ctx, hold.Grant.Id).ReversalRequest(*reason).Execute()
		answered(status, response, err)
		must(reversed.Grant.State == perdiem.GRANTSTATE_REVERSED && reversed.Limits[0].Used == 1, "the reversal", reversed)
	}
	usage, response, err := client.ClaimsAPI.GetUsage(ctx, "benefit", "member-42").Execute()
	answered(200, response, err)
	must(usage.UsageBody != nil && usage.UsageBody.Limits[0].Used == 1, "the usage", usage)
	fmt.Println("the generated client for Go got the answers that openapi.yaml describes")
}
