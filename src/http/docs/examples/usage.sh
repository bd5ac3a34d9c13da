curl -w '\n' "$PERDIEM_URL/v1/policies/first-steps/subjects/member-42" \
  -H "Authorization: Bearer $PERDIEM_KEY"
