curl -w '\n' "$PERDIEM_URL/v1/policies/first-steps/claims" \
  -H "Authorization: Bearer $PERDIEM_KEY" \
  -H "Idempotency-Key: A-17" \
  -d '{"subject": "member-42"}'
