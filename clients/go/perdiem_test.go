package perdiem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"perdiem"
)

var (
	serverURL = os.Getenv("PERDIEM_URL")
	secret    = os.Getenv("PERDIEM_KEY")
	ctx       = context.Background()
)

func admin(t *testing.T, method, path, body string, answer any) {
	t.Helper()
	request, _ := http.NewRequest(method, serverURL+"/v1/"+path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+secret)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", method, path, text)
	}
	json.Unmarshal(text, answer)
}

// newPolicy makes a policy of 3 units a day for this test alone. In its zone it is noon, so that no day ends.
func newPolicy(t *testing.T) string {
	policy := fmt.Sprintf("go-%d", rand.New(rand.NewSource(time.Now().UnixNano())).Int63())
	zone := fmt.Sprintf("%+03d:00", 12-time.Now().UTC().Hour())
	body := fmt.Sprintf(`{"time_zone": %q, "limits": [{"max": 3, "per": "day"}]}`, zone)
	admin(t, "PUT", "policies/"+policy, body, nil)
	return policy
}

func states(t *testing.T, policy string) (states []string) {
	var list struct{ Items []perdiem.Grant }
	admin(t, "GET", "grants?policy="+policy, "", &list)
	for _, grant := range list.Items {
		states = append(states, grant.State)
	}
	sort.Strings(states)
	return states
}

func newShaky(t *testing.T, faults ...string) (*perdiem.Client, *proxy) {
	p := startProxy(t, faults...)
	client := perdiem.New(p.url(), secret)
	client.Deadline, client.HTTP.Timeout = 5*time.Second, 2*time.Second
	return client, p
}

func check[T any](t *testing.T, found, wanted T) {
	t.Helper()
	if !reflect.DeepEqual(found, wanted) {
		t.Fatalf("found %v, wanted %v", found, wanted)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func refused(t *testing.T, err error, reason perdiem.Refusal) *perdiem.Error {
	t.Helper()
	if !errors.Is(err, reason) || !errors.Is(err, perdiem.NotGranted) {
		t.Fatalf("found %v, wanted %v", err, reason)
	}
	return err.(*perdiem.Error)
}

func TestClaimIsGrantedAndReplayed(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret+"\n"), newPolicy(t)
	claim := perdiem.Claim{Policy: policy, Subject: "m", Key: "k", Units: 2, Metadata: map[string]any{"order": "A-17"}}
	granted := must(client.Claim(ctx, claim))
	check(t, granted.Replayed || granted.Provisional, false)
	check(t, []int64{granted.Limits[0].Used, granted.Limits[0].Remaining}, []int64{2, 1})
	again := must(client.Claim(ctx, claim))
	check(t, again.Replayed, true)
	check(t, again.Grant, granted.Grant)
	check(t, states(t, policy), []string{"granted"})
}

func TestDenialSaysWhenToComeAgain(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret), newPolicy(t)
	must(client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "m", Key: "k1", Units: 3}))
	_, err := client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "m", Key: "k2"})
	denied := refused(t, err, perdiem.Denied)
	check(t, denied.Violated, []string{"day"})
	check(t, denied.Limits[0].Remaining, 0)
	check(t, (time.Until(*denied.FitsAt)-denied.RetryAfter).Abs() < 2*time.Second, true)
	check(t, denied.MayBeGranted(), false)
}

func TestDryRunCountsNothing(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret), newPolicy(t)
	check(t, must(client.DryRun(ctx, policy, "m", 3))[0].Used, 3)
	check(t, must(client.Usage(ctx, policy, "m"))[0].Used, 0)
	must(client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "m", Key: "k", Units: 3}))
	_, err := client.DryRun(ctx, policy, "m", 1)
	check(t, refused(t, err, perdiem.Denied).FitsAt != nil, true)
}

func TestHoldIsConfirmedOrLapses(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret), newPolicy(t)
	granted := must(client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "m", Key: "k1", HoldSeconds: 60}))
	check(t, granted.Grant.State, "held")
	check(t, granted.Grant.HeldUntil != nil, true)
	check(t, must(client.Confirm(ctx, granted.Grant.ID)).State, "granted")
	claim := perdiem.Claim{Policy: policy, Subject: "m", Key: "k2", HoldSeconds: 1}
	late := must(client.Claim(ctx, claim))
	time.Sleep(1200 * time.Millisecond)
	_, err := client.Confirm(ctx, late.Grant.ID)
	refused(t, err, perdiem.Lapsed)
	_, err = client.Claim(ctx, claim)
	refused(t, err, perdiem.Lapsed)
}

func TestGrantIsReversed(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret), newPolicy(t)
	claim := perdiem.Claim{Policy: policy, Subject: "m", Key: "k"}
	granted := must(client.Claim(ctx, claim))
	for i := 0; i < 2; i++ {
		check(t, must(client.Reverse(ctx, granted.Grant.ID, "it came back")).State, "reversed")
	}
	check(t, must(client.Usage(ctx, policy, "m"))[0].Used, 0)
	_, err := client.Claim(ctx, claim)
	refused(t, err, perdiem.Reversed)
}

func TestBatchHasAResultForEachClaim(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret), newPolicy(t)
	claims := []perdiem.Claim{{Policy: policy, Subject: "m"}, {Policy: policy, Subject: "m", Units: 4}, {Policy: "nowhere", Subject: "m"}}
	for _, isReplay := range []bool{false, true} {
		results := must(client.Batch(ctx, "batch", claims, false))
		check(t, results[0].Err == nil && results[0].Replayed == isReplay, true)
		check(t, results[1].Err.(*perdiem.Error).Code, "invalid")
		check(t, results[2].Err.(*perdiem.Error).Code, "unknown-policy")
	}
	claims = []perdiem.Claim{{Policy: policy, Subject: "b"}, {Policy: policy, Subject: "m", Units: 3}}
	results := must(client.Batch(ctx, "atomic", claims, true))
	check(t, results[0].Err.(*perdiem.Error).Code, "failed-dependency")
	refused(t, results[1].Err, perdiem.Denied)
	_, err := client.Batch(ctx, "", claims, true)
	check(t, err.(*perdiem.Error).Code, "invalid")
}

func TestProblemsAreToldByTheirCode(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret), newPolicy(t)
	admin(t, "PUT", "policies/"+policy+"/blocks/m", `{"reason": "fraud"}`, nil)
	_, err := client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "m", Key: "k"})
	refused(t, err, perdiem.Blocked)
	admin(t, "PUT", "policies/"+policy+"/pause", `{"reason": "a fault"}`, nil)
	_, err = client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "b", Key: "k"})
	refused(t, err, perdiem.Inactive)
	_, err = client.Claim(ctx, perdiem.Claim{Policy: "nowhere", Subject: "m", Key: "k"})
	problem := err.(*perdiem.Error)
	check(t, problem.Code, "unknown-policy")
	check(t, problem.Status, 404)
	check(t, problem.RequestID != "" && problem.Detail != "" && !problem.MayBeGranted(), true)
	check(t, errors.Is(err, perdiem.NotGranted), false)
	_, err = client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "m"})
	check(t, err.(*perdiem.Error).Code, "invalid")
}

func TestLostAnswerIsOneGrant(t *testing.T) {
	for _, faults := range [][]string{{"cut", "cut"}, {"lose", "lose"}, {"tear", "tear"}, {"delay"}} {
		t.Run(faults[0], func(t *testing.T) {
			policy := newPolicy(t)
			client, proxy := newShaky(t, faults...)
			granted := must(client.Claim(ctx, perdiem.Claim{Policy: policy, Subject: "m", Key: "k"}))
			check(t, granted.Replayed, faults[0] != "cut")
			check(t, proxy.requests >= 2, true)
			check(t, states(t, policy), []string{"granted"})
		})
	}
}

func TestDeadlineIsForTheWholeCall(t *testing.T) {
	client, proxy := newShaky(t, "delay", "delay", "delay", "delay", "delay", "delay")
	client.Deadline, client.HTTP.Timeout = time.Second, 400*time.Millisecond
	began := time.Now()
	_, err := client.Claim(ctx, perdiem.Claim{Policy: newPolicy(t), Subject: "m", Key: "k"})
	problem := err.(*perdiem.Error)
	check(t, problem.Code, "no-answer")
	check(t, problem.Status == 0 && problem.MayBeGranted() && proxy.requests >= 2, true)
	check(t, time.Since(began) < 1500*time.Millisecond, true)
}

func TestContextEndsACall(t *testing.T) {
	client, _ := newShaky(t, "HTTP/1.1 503 Overloaded\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n")
	ended, end := context.WithTimeout(ctx, 300*time.Millisecond)
	defer end()
	began := time.Now()
	_, err := client.Claim(ended, perdiem.Claim{Policy: newPolicy(t), Subject: "m", Key: "k"})
	check(t, err.(*perdiem.Error).MayBeGranted() && time.Since(began) < time.Second, true)
}

func TestRetryAfterIsWaitedFor(t *testing.T) {
	for _, until := range []string{"1", "a date", "60"} {
		if until == "a date" {
			until = time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)
		}
		client, proxy := newShaky(t, "HTTP/1.1 503 Overloaded\r\nRetry-After: "+until+"\r\nContent-Length: 0\r\n\r\n")
		began := time.Now()
		_, err := client.Claim(ctx, perdiem.Claim{Policy: newPolicy(t), Subject: "m", Key: "k"})
		if until == "60" { // It is after the deadline.
			check(t, err.(*perdiem.Error).RetryAfter, time.Minute)
			check(t, proxy.requests, 1)
			continue
		}
		check(t, err, nil)
		check(t, time.Since(began) > 500*time.Millisecond, true)
	}
}

func TestGarbageIsAnError(t *testing.T) {
	for _, answer := range []string{
		"200 OK\r\nContent-Length: 2\r\n\r\n{}",
		"201 Created\r\nContent-Length: 5\r\n\r\n<html",
		"404 Not Found\r\nContent-Length: 2\r\n\r\n[]",
		"307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
	} {
		client, proxy := newShaky(t, "HTTP/1.1 "+answer)
		_, err := client.Claim(ctx, perdiem.Claim{Policy: newPolicy(t), Subject: "m", Key: "k"})
		check(t, err.(*perdiem.Error).Code, "unreadable")
		check(t, err.(*perdiem.Error).MayBeGranted() && proxy.requests == 1, true)
	}
}

func TestNobodySeesTheSecret(t *testing.T) {
	client := perdiem.New("http://127.0.0.1:1", secret+" \x01")
	client.Deadline = 300 * time.Millisecond
	_, err := client.Usage(ctx, "p", "m")
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if shown := fmt.Sprintf(format+" "+format+" "+format, client, *client, err); strings.Contains(shown, secret) {
			t.Fatal(shown)
		}
	}
}

func TestHandlersRunAfterAClaim(t *testing.T) {
	client, policy := perdiem.New(serverURL, secret), newPolicy(t)
	claimOf := func(r *http.Request) perdiem.Claim {
		return perdiem.Claim{Policy: policy, Subject: "m", Key: strings.TrimPrefix(r.URL.Path, "/")}
	}
	server := httptest.NewServer(client.WithClaim(claimOf, func(w http.ResponseWriter, r *http.Request, granted perdiem.Granted) {
		switch r.URL.RawQuery {
		case "status":
			http.Error(w, "the gateway refused", http.StatusBadGateway)
		case "panic":
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, granted.Grant.State)
		}
	}))
	defer server.Close()
	send := func(path string) (int, string) {
		response, err := http.Post(server.URL+"/"+path, "", nil)
		if err != nil {
			return 0, ""
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	status, _ := send("k0?status")
	check(t, status, 502)
	send("k1?panic")
	check(t, states(t, policy), []string{"reversed", "reversed"})
	for _, order := range []string{"k2", "k3", "k4"} {
		status, text := send(order)
		check(t, status, 200)
		check(t, text, "held")
	}
	check(t, states(t, policy), []string{"granted", "granted", "granted", "reversed", "reversed"})
	// The failure of a replay takes nothing back.
	send("k2?status")
	status, _ = send("k5")
	check(t, status, 429)
	status, _ = send("k0")
	check(t, status, 409)
	check(t, states(t, policy), []string{"granted", "granted", "granted", "reversed", "reversed"})
}
