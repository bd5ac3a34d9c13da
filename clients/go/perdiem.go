// Package perdiem claims units of perdiem before a backend gives something. README.md shows how.
package perdiem

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Claim asks for units; 0 is 1. Key is its Idempotency-Key: one for each thing that you give, such as an order. With
// HoldSeconds the grant is a hold, which lapses after this time unless it is confirmed.
type Claim struct {
	Policy      string         `json:"policy,omitempty"`
	Subject     string         `json:"subject"`
	Key         string         `json:"idempotency_key,omitempty"`
	Units       int64          `json:"units,omitempty"`
	Metadata    map[string]any `json:"metadata,omitempty"`
	HoldSeconds int64          `json:"hold_seconds,omitempty"`
}

// Limit is a limit and its usage, in units. An instant is nil if it never comes.
type Limit struct {
	Per, Kind            string
	Max, Used, Remaining int64
	MoreAt               *time.Time `json:"more_at"`
	ResetsAt             *time.Time `json:"resets_at"`
}

// Grant has the State held, granted, reversed or lapsed. Only a hold has HeldUntil.
type Grant struct {
	ID, Policy, Subject, State string
	Units                      int64
	HeldUntil                  *time.Time `json:"held_until"`
}

// Granted answers a claim. Replayed: its key was granted before, perhaps by an attempt of this very call whose answer
// was lost. Provisional: the ledger does not have the grant yet.
type Granted struct {
	Grant                 Grant
	Limits                []Limit
	Replayed, Provisional bool
}

// Result is what a claim of a batch got.
type Result struct {
	Granted
	Err error
}

// Refusal is the reason of a claim that is not granted: errors.Is(err, perdiem.Denied).
type Refusal string

const (
	NotGranted Refusal = "not-granted"     // Any of the others.
	Denied     Refusal = "quota-exceeded"  // The units fit at FitsAt, or at no known instant.
	Blocked    Refusal = "subject-blocked" // An admin has blocked the subject.
	Inactive   Refusal = "policy-inactive" // The policy is paused, has not begun, or has ended.
	Reversed   Refusal = "grant-reversed"  // The grant of this key was reversed: claim again with another key.
	Lapsed     Refusal = "hold-lapsed"     // The hold of this key lapsed: claim again with another key.
)

var statuses = map[Refusal]int{Denied: 429, Blocked: 403, Inactive: 409, Reversed: 409, Lapsed: 409}

func (r Refusal) Error() string { return string(r) }

// Error is a problem, by its Code. The client has two codes of its own: no-answer, with the Status 0, and unreadable
// for an answer that is not perdiem's, such as a redirect. RetryAfter is 0 if it is unknown.
type Error struct {
	Code, Detail string
	RequestID    string `json:"request_id"`
	Status       int
	RetryAfter   time.Duration `json:"-"`
	FitsAt       *time.Time    `json:"fits_at"`           // Of Denied: nil is never.
	Violated     []string      `json:"violated-policies"` // Of Denied: the limits without room.
	Limits       []Limit       // Of Denied.
	cause        error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (status %d, request %s)", e.Code, e.Detail, e.Status, e.RequestID)
}
func (e *Error) Unwrap() error { return e.cause }
func (e *Error) Is(target error) bool {
	return target == Refusal(e.Code) || target == NotGranted && statuses[Refusal(e.Code)] != 0
}

// MayBeGranted is true if the claim may be granted all the same: send it again, with the same key.
func (e *Error) MayBeGranted() bool { return e.canRetry() || e.Code == "unreadable" }
func (e *Error) canRetry() bool {
	return e.Status == 0 || e.Status == 503 || e.Code == "claim-in-progress"
}

// Client sends claims. A call sends its request again, with the same key, after 503, claim-in-progress and broken
// connections, until the Deadline or the end of its context. Its errors have the type *Error.
type Client struct {
	Deadline time.Duration // Of a whole call.
	HTTP     *http.Client  // Its Timeout is that of one attempt.
	OnError  func(error)   // Gets errors that no caller gets, such as that of a reversal after a failure.
	url      string
	header   func() http.Header // No print of a client shows the secret in a function.
}

// New makes a client with a deadline of 10 seconds, and attempts of 4.
func New(address, secret string) *Client {
	keepRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	header := func() http.Header {
		return http.Header{"Authorization": {"Bearer " + strings.TrimSpace(secret)}, "User-Agent": {"perdiem-go/0.1.0"}}
	}
	return &Client{10 * time.Second, &http.Client{Timeout: 4 * time.Second, CheckRedirect: keepRedirect},
		func(err error) { log.Print("perdiem: ", err) }, strings.TrimRight(address, "/"), header}
}

// Claim claims units. If they are not granted, the error is Denied, Blocked, Inactive, Reversed or Lapsed.
func (c *Client) Claim(ctx context.Context, claim Claim) (Granted, error) {
	path, key := "/policies/"+url.PathEscape(claim.Policy)+"/claims", claim.Key
	claim.Policy, claim.Key = "", ""
	answer, err := c.ask(ctx, http.MethodPost, path, &key, claim)
	return answer.granted(), err
}

// DryRun returns the error that a claim would get now, or the limits as they would be. It counts nothing.
func (c *Client) DryRun(ctx context.Context, policy, subject string, units int64) ([]Limit, error) {
	body := map[string]any{"subject": subject, "units": units, "dry_run": true}
	answer, err := c.ask(ctx, http.MethodPost, "/policies/"+url.PathEscape(policy)+"/claims", nil, body)
	if answer.Outcome == "denied" {
		answer.Code, answer.Detail, err = string(Denied), "says a dry run", &answer.Error
	}
	return answer.Limits, err
}

// Batch sends 1 to 1000 claims; an atomic one grants all or none. A claim without a Key gets that of the batch and its
// number. The results are in the claims' order: send the batch again if an error of them MayBeGranted.
func (c *Client) Batch(ctx context.Context, key string, claims []Claim, atomic bool) ([]Result, error) {
	answer, err := c.ask(ctx, http.MethodPost, "/claims", &key, map[string]any{"claims": claims, "atomic": atomic})
	results := make([]Result, len(answer.Items))
	for i := range answer.Items {
		if results[i].Granted = answer.Items[i].granted(); results[i].Grant.ID == "" {
			results[i].Err = answer.Items[i].problem()
		}
	}
	return results, err
}

// Reverse gives back what is left of a grant, once. The error can be Reversed or Lapsed.
func (c *Client) Reverse(ctx context.Context, id, reason string) (Grant, error) {
	key := id + ".reversal"
	answer, err := c.ask(ctx, http.MethodPost, "/grants/"+url.PathEscape(id)+"/reversal", &key, map[string]any{"reason": reason})
	return answer.Grant, err
}

// Confirm makes a hold final. The error can be Reversed or Lapsed.
func (c *Client) Confirm(ctx context.Context, id string) (Grant, error) {
	answer, err := c.ask(ctx, http.MethodPost, "/grants/"+url.PathEscape(id)+"/confirmation", nil, map[string]any{})
	return answer.Grant, err
}

// Usage returns a subject's limits now. You need not ask before a claim, whose answer has the limits too.
func (c *Client) Usage(ctx context.Context, policy, subject string) ([]Limit, error) {
	answer, err := c.ask(ctx, http.MethodGet, "/policies/"+url.PathEscape(policy)+"/subjects/"+url.PathEscape(subject), nil, json.RawMessage{})
	return answer.Limits, err
}

// Settle ends a claim: a success confirms its hold, and a failure reverses its grant. A replay is not reversed, because
// an earlier run with this key may have given what the grant is for. OnError gets the errors.
func (c *Client) Settle(granted Granted, isSuccess bool) {
	id, ctx, err := granted.Grant.ID, context.Background(), error(nil) // The caller may be gone.
	if isSuccess && granted.Grant.State == "held" {
		_, err = c.Confirm(ctx, id)
	} else if !isSuccess && !granted.Replayed {
		_, err = c.Reverse(ctx, id, "the handler failed")
	}
	if err != nil {
		c.OnError(err)
	}
}

// WithClaim claims before a handler, with a hold of 60 seconds unless the claim says more, and settles it after the
// handler: a panic and a status from 400 on are failures. It answers refusals with 429, 403 or 409, and errors with 503.
func (c *Client) WithClaim(claimOf func(*http.Request) Claim, handle func(http.ResponseWriter, *http.Request, Granted)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claim := claimOf(r)
		if claim.HoldSeconds == 0 {
			claim.HoldSeconds = 60
		}
		granted, err := c.Claim(r.Context(), claim)
		if problem, isRefused := err.(*Error); isRefused {
			c.refuse(w, problem)
			return
		}
		recorder, isSuccess := &recorder{ResponseWriter: w}, false // A panic settles too.
		defer func() { c.Settle(granted, isSuccess) }()
		handle(recorder, r, granted)
		isSuccess = recorder.status < 400
	})
}

func (c *Client) refuse(w http.ResponseWriter, problem *Error) {
	status := statuses[Refusal(problem.Code)]
	if status == 0 {
		c.OnError(problem)
		status = http.StatusServiceUnavailable
	}
	if problem.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((problem.RetryAfter+time.Second-1)/time.Second)))
	}
	http.Error(w, http.StatusText(status), status)
}

type recorder struct {
	http.ResponseWriter
	status int // 0 is 200.
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

type answer struct {
	Error
	Type, Outcome string
	Grant         Grant
	Provisional   bool
	Items         []answer
}

func (a *answer) granted() Granted {
	return Granted{a.Grant, a.Limits, a.Status == http.StatusOK, a.Provisional}
}
func (a *answer) problem() *Error {
	if a.Code == "" {
		a.Code = a.Type[strings.LastIndexAny(a.Type, "#/")+1:]
	}
	if a.Code == "" {
		a.Code, a.Detail = "unreadable", "this is no answer of perdiem"
	}
	return &a.Error
}

func (c *Client) ask(ctx context.Context, method, path string, key *string, body any) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	text, _ := json.Marshal(body) // perdiem refuses what is no JSON.
	request, err := http.NewRequestWithContext(ctx, method, c.url+"/v1"+path, strings.NewReader(string(text)))
	if err != nil {
		return &answer{}, &Error{Code: "invalid", Detail: err.Error(), cause: err}
	}
	request.Header = c.header()
	if key != nil {
		request.Header.Set("Idempotency-Key", *key)
	}
	for attempt := 0.0; ; attempt++ {
		reply := c.attempt(request)
		if reply.Status/100 == 2 && (reply.Limits != nil || reply.Items != nil) {
			return reply, nil
		}
		problem := reply.problem()
		pause := problem.RetryAfter + time.Duration(math.Min(2e9, 1e8*math.Exp2(attempt))*(0.5+rand.Float64()/2))
		if deadline, _ := ctx.Deadline(); !problem.canRetry() || time.Until(deadline) <= pause || ctx.Err() != nil {
			return &answer{}, problem
		}
		rest, stop := context.WithTimeout(ctx, pause)
		<-rest.Done()
		stop()
	}
}

func (c *Client) attempt(request *http.Request) *answer {
	var text []byte
	request.Body, _ = request.GetBody()
	response, err := c.HTTP.Do(request)
	if err == nil {
		defer response.Body.Close()
		text, err = io.ReadAll(response.Body)
	}
	if err != nil {
		return &answer{Error: Error{Code: "no-answer", Detail: err.Error(), cause: err}}
	}
	var reply answer
	if json.Unmarshal(text, &reply) != nil {
		reply = answer{}
	}
	reply.Status, reply.RequestID = response.StatusCode, response.Header.Get("X-Request-Id")
	seconds, _ := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31)
	reply.RetryAfter = time.Duration(seconds) * time.Second
	if date, err := http.ParseTime(response.Header.Get("Retry-After")); err == nil && date.After(time.Now()) {
		reply.RetryAfter = time.Until(date)
	}
	return &reply
}
