# The same with curl. API_URL and API_TOKEN are set; each line can be pasted.
set -eu
auth="Authorization: Bearer $API_TOKEN"
json="Content-Type: application/json"

# Start a run. The same Idempotency-Key and body again give the same run.
key="order-$ORDER"
run=$(curl -fsS "$API_URL/api/v1/runs" -H "$auth" -H "$json" -H "Idempotency-Key: $key" -d '{"agent": "refund_desk", "input": {"order_id": "'"$ORDER"'", "message": "It arrived broken.", "amount": "70.00 EUR"}}' | sed 's/.*"id":"\(run_[0-9a-f]*\)".*/\1/')
echo "started $run"

# Wait until its status changes or it ends, at most 20 seconds.
curl -fsS "$API_URL/api/v1/runs/$run?wait=20" -H "$auth" >/dev/null

# What it did, and what it asks.
curl -fsS "$API_URL/api/v1/runs/$run/actions" -H "$auth" >/dev/null
curl -fsS "$API_URL/api/v1/approvals?run=$run&state=pending" -H "$auth" >/dev/null

# Its events so far, as a stream.
curl -fsS "$API_URL/api/v1/runs/$run/events" -H "$auth" -H "Accept: text/event-stream" | grep -c "^id:"

# Cancel it.
curl -fsS "$API_URL/api/v1/runs/$run/cancel" -H "$auth" -H "$json" -H "Idempotency-Key: cancel-$key" -d '{"reason": "the customer called"}' | grep -o '"status":"[a-z]*"' | head -1
