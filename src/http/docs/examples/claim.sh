# Claims 1 unit for member-42. The argument is the Idempotency-Key.
order=$1
backoff=1

# The value of a text field of the answer.
field() {
  printf '%s' "$answer" | tail -n 1 | sed -n "s/^[^[]*\"$1\":\"\([^\"]*\)\".*/\1/p"
}

for attempt in 1 2 3 4 5; do
  # Every attempt has the same key: the claim is granted at most once.
  answer=$(curl -sS -i --max-time 10 "$PERDIEM_URL/v1/policies/first-steps/claims" \
    -H "Authorization: Bearer $PERDIEM_KEY" \
    -H "Idempotency-Key: $order" \
    -d '{"subject": "member-42"}')
  status=$(printf '%s' "$answer" | sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p')
  wait=$(printf '%s' "$answer" | sed -n 's/^[Rr]etry-[Aa]fter: \([0-9]*\).*/\1/p')

  case "$status:$wait" in
    20*)
      echo "$order granted: $(field id)"
      exit 0 ;;
    429:*)
      # Denied. Do not claim again before Retry-After.
      echo "$order denied: $(field detail) (Retry-After: $wait s)"
      exit 3 ;;
    4*:)
      # The request is wrong. It would fail again.
      echo "$order failed: $(field detail)" >&2
      exit 1 ;;
  esac

  # 503, 409 with Retry-After, or no answer: send the same claim again.
  if [ "${wait:-0}" -lt "$backoff" ]; then wait=$backoff; fi
  sleep "$wait"
  backoff=$((backoff * 2))
done
echo "$order failed: perdiem cannot answer now" >&2
exit 75
