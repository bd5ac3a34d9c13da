package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var client = http.Client{Timeout: 10 * time.Second}

// Answer holds the fields of perdiem's answers that this program reads.
type Answer struct {
	Detail string
	Grant  struct{ ID string }
	Limits []struct{ Used, Max int }
}

// sendOnce returns the status, Retry-After (0 if absent) and the text.
func sendOnce(method, path, body, order string) (int, int, []byte, error) {
	url := os.Getenv("PERDIEM_URL") + path
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("PERDIEM_KEY"))
	if order != "" {
		request.Header.Set("Idempotency-Key", order)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, 0, nil, err
	}
	defer response.Body.Close()
	retryAfter, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, retryAfter, text, err
}

// send sends a request until perdiem answers it, at most 5 times.
func send(method, path, body, order string) (status, retryAfter int, answer Answer) {
	backoff := time.Second
	for attempt := 0; attempt < 5; attempt++ {
		// Every attempt has the same key: the claim is granted at most once.
		status, retryAfter, text, err := sendOnce(method, path, body, order)
		if err == nil && (status < 300 || status == 429) {
			if err := json.Unmarshal(text, &answer); err != nil {
				log.Fatal(err)
			}
			return status, retryAfter, answer
		}
		if err == nil && status < 500 && retryAfter == 0 {
			// The request is wrong. It would fail again.
			log.Fatal(string(text))
		}
		// 503, 409 with Retry-After, or no answer: send the same request again.
		wait := time.Duration(retryAfter) * time.Second
		if wait < backoff {
			wait = backoff
		}
		time.Sleep(wait + time.Duration(rand.Int63n(int64(time.Second))))
		backoff *= 2
	}
	log.Fatal("perdiem cannot answer now")
	return
}

func main() {
	// 1. Put a policy: each subject may take 3 units per day. A day begins at midnight in GMT+8.
	rule := `{"time_zone": "GMT+8", "limits": [{"max": 3, "per": "day"}]}`
	send("PUT", "/v1/policies/first-steps", rule, "")

	// 2. Claim. A-17 is claimed twice, and gets the same grant twice.
	for _, order := range []string{"A-17", "A-17", "A-18", "A-19", "A-20"} {
		claim := `{"subject": "member-42"}`
		status, retryAfter, answer := send("POST", "/v1/policies/first-steps/claims", claim, order)
		if status == 429 {
			// Denied. Do not claim again before Retry-After.
			fmt.Printf("%s denied: %s (Retry-After: %d s)\n", order, answer.Detail, retryAfter)
		} else {
			fmt.Printf("%s granted: %s\n", order, answer.Grant.ID)
		}
	}

	// 3. Read the usage.
	_, _, usage := send("GET", "/v1/policies/first-steps/subjects/member-42", "", "")
	fmt.Printf("used: %d of %d\n", usage.Limits[0].Used, usage.Limits[0].Max)
}
