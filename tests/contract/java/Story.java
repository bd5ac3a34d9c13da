// Uses the API as a backend would, with the client that openapi-generator makes for Java.
//
// scripts/check-clients generated runs this against a new perdiem at PERDIEM_URL, with an admin's PERDIEM_KEY.

import java.net.http.HttpClient;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.List;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.ApiResponse;
import org.openapitools.client.api.ClaimsApi;
import org.openapitools.client.api.GrantsApi;
import org.openapitools.client.api.PoliciesApi;
import org.openapitools.client.model.BatchBody;
import org.openapitools.client.model.BatchClaim;
import org.openapitools.client.model.ClaimAnswer;
import org.openapitools.client.model.ClaimBody;
import org.openapitools.client.model.ClaimOutcome;
import org.openapitools.client.model.ClaimRefusal;
import org.openapitools.client.model.ConfirmationRequest;
import org.openapitools.client.model.DenialBody;
import org.openapitools.client.model.GrantState;
import org.openapitools.client.model.GrantedItem;
import org.openapitools.client.model.LimitBody;
import org.openapitools.client.model.PolicyBody;
import org.openapitools.client.model.Problem;
import org.openapitools.client.model.ProblemCode;
import org.openapitools.client.model.QuotaExceeded;
import org.openapitools.client.model.ReversalRequest;

class Story {
    static final ApiClient CLIENT = new ApiClient();
    static final ClaimsApi CLAIMS;
    static final GrantsApi GRANTS;

    static {
        CLIENT.updateBaseUri(System.getenv("PERDIEM_URL"));
        String key = "Bearer " + System.getenv("PERDIEM_KEY");
        CLIENT.setRequestInterceptor(request -> request.header("Authorization", key));
        // Otherwise the client asks to upgrade to HTTP/2, and the server ends the connection after such a request.
        CLIENT.setHttpClientBuilder(HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1));
        CLAIMS = new ClaimsApi(CLIENT);
        GRANTS = new GrantsApi(CLIENT);
    }

    /** Ends the program where something is not as openapi.yaml says. */
    static void must(boolean isSo, Object found) {
        if (!isSo) {
            throw new AssertionError(found);
        }
    }

    static ApiResponse<ClaimAnswer> claim(String key, ClaimBody body) throws ApiException {
        return CLAIMS.claimWithHttpInfo("benefit", body, key);
    }

    /** The body of the problem that a request gets. */
    static <T> T refused(int status, Class<T> type, Request request) throws Exception {
        try {
            request.send();
        } catch (ApiException problem) {
            must(problem.getCode() == status, problem);
            return CLIENT.getObjectMapper().readValue(problem.getResponseBody(), type);
        }
        throw new AssertionError("no problem " + status);
    }

    interface Request {
        void send() throws ApiException;
    }

    public static void main(String[] arguments) throws Exception {
        // It is noon in this zone, so that no day ends during the run.
        String zone = String.format("%+03d:00", 12 - OffsetDateTime.now(ZoneOffset.UTC).getHour());
        LimitBody limit = new LimitBody().max(3L).per("day");
        PolicyBody policy = new PolicyBody().timeZone(zone).limits(List.of(limit));
        must(new PoliciesApi(CLIENT).putPolicy("benefit", policy, null, null, null).getVersion() == 1, policy);

        // A claim, and its retry.
        ClaimBody body = new ClaimBody().subject("member-42");
        var first = claim("order-1", body);
        must(first.getStatusCode() == 201 && first.getData().getOutcome() == ClaimOutcome.GRANTED, first.getData());
        var again = claim("order-1", body);
        must(again.getStatusCode() == 200 && again.getHeaders().containsKey("idempotent-replayed"), again.getData());
        must(again.getData().getGrant().equals(first.getData().getGrant()), again.getData());

        // A denial, which `code` tells from the other problem with this status.
        ClaimBody more = new ClaimBody().subject("member-42").units(3L);
        var refusal = refused(429, ClaimRefusal.class, () -> claim("order-2", more)).getActualInstance();
        must(refusal instanceof DenialBody, refusal);
        DenialBody denial = (DenialBody) refusal;
        must(denial.getCode() == QuotaExceeded.QUOTA_EXCEEDED && denial.getFitsAt() != null, denial);
        must(denial.getViolatedPolicies().equals(List.of("day")), denial);

        // A problem that every operation can have.
        Problem problem = refused(404, Problem.class, () -> CLAIMS.claim("nowhere", body, null));
        must(problem.getCode() == ProblemCode.UNKNOWN_POLICY, problem);

        // A hold, and its confirmation. For a body that is left out, the client would send `null`.
        var hold = claim("order-3", new ClaimBody().subject("member-42").holdSeconds(600L)).getData().getGrant();
        must(hold.getState() == GrantState.HELD && hold.getHeldUntil().isAfter(hold.getGrantedAt()), hold);
        var confirmed = GRANTS.confirmGrant(hold.getId(), null, new ConfirmationRequest());
        must(confirmed.getGrant().getState() == GrantState.GRANTED, confirmed);

        // A batch of a claim that is granted, and one that is denied.
        BatchBody batch = new BatchBody()
            .addClaimsItem(new BatchClaim().policy("benefit").subject("member-1"))
            .addClaimsItem(new BatchClaim().policy("benefit").subject("member-42").units(2L));
        var items = CLAIMS.claimBatch(batch, "batch-1").getItems();
        Object granted = items.get(0).getActualInstance();
        Object denied = items.get(1).getActualInstance();
        must(granted instanceof GrantedItem && ((GrantedItem) granted).getStatus() == 201, granted);
        must(denied instanceof DenialBody && ((DenialBody) denied).getStatus() == 429, denied);

        // A reversal, once.
        for (int status : new int[] {201, 200}) {
            ReversalRequest reason = new ReversalRequest().reason("SMS gateway refused");
            var reversed = GRANTS.reverseGrantWithHttpInfo(hold.getId(), reason, null);
            must(reversed.getStatusCode() == status, reversed.getData());
            must(reversed.getData().getGrant().getState() == GrantState.REVERSED, reversed.getData());
            must(reversed.getData().getLimits().get(0).getUsed() == 1, reversed.getData());
        }
        System.out.println("the generated client for Java got the answers that openapi.yaml describes");
    }
}
