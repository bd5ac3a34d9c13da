curl -w '\n' -X PUT "$PERDIEM_URL/v1/policies/first-steps" \
  -H "Authorization: Bearer $PERDIEM_KEY" \
  -d '{"time_zone": "GMT+8", "limits": [{"max": 3, "per": "day"}]}'
