import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class First {
    static final String URL = System.getenv("PERDIEM_URL");
    static final String KEY = System.getenv("PERDIEM_KEY");
    static final HttpClient CLIENT = HttpClient.newHttpClient();

    /** Sends a request until perdiem answers it, at most 5 times. */
    static HttpResponse<String> send(String method, String path, String body, String order)
            throws InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(URL + path))
                .timeout(Duration.ofSeconds(10))
                .header("Authorization", "Bearer " + KEY)
                .method(method, BodyPublishers.ofString(body));
        if (order != null) {
            request.header("Idempotency-Key", order);
        }
        for (int attempt = 0; attempt < 5; attempt++) {
            long wait = 0;
            try {
                // Every attempt has the same key: the claim is granted at most once.
                HttpResponse<String> answer = CLIENT.send(request.build(), BodyHandlers.ofString());
                wait = retryAfter(answer);
                if (answer.statusCode() < 300 || answer.statusCode() == 429) {
                    return answer;
                }
                if (answer.statusCode() < 500 && wait == 0) {
                    // The request is wrong. It would fail again.
                    throw new IllegalStateException(answer.body());
                }
            } catch (IOException noAnswer) {
                // As 503.
            }
            // 503, 409 with Retry-After, or no answer: send the same request again.
            double seconds = Math.max(wait, Math.pow(2, attempt)) + Math.random();
            Thread.sleep((long) (1000 * seconds));
        }
        throw new IllegalStateException("perdiem cannot answer now");
    }

    static long retryAfter(HttpResponse<String> answer) {
        return answer.headers().firstValueAsLong("Retry-After").orElse(0);
    }

    /** The first JSON field with this name. In your own program, use a JSON library. */
    static String field(HttpResponse<String> answer, String name) {
        Pattern pattern = Pattern.compile("\"" + name + "\":\"?([^\",}]*)");
        Matcher found = pattern.matcher(answer.body());
        return found.find() ? found.group(1) : "?";
    }

    public static void main(String[] arguments) throws InterruptedException {
        // 1. Put a policy: each subject may take 3 units per day. A day begins at midnight in GMT+8.
        String rule = """
                {"time_zone": "GMT+8", "limits": [{"max": 3, "per": "day"}]}""";
        send("PUT", "/v1/policies/first-steps", rule, null);

        // 2. Claim. A-17 is claimed twice, and gets the same grant twice.
        for (String order : List.of("A-17", "A-17", "A-18", "A-19", "A-20")) {
            String claim = """
                    {"subject": "member-42"}""";
            var answer = send("POST", "/v1/policies/first-steps/claims", claim, order);
            if (answer.statusCode() == 429) {
                // Denied. Do not claim again before Retry-After.
                String detail = field(answer, "detail");
                System.out.printf("%s denied: %s (Retry-After: %d s)%n", order, detail, retryAfter(answer));
            } else {
                System.out.printf("%s granted: %s%n", order, field(answer, "id"));
            }
        }

        // 3. Read the usage.
        var usage = send("GET", "/v1/policies/first-steps/subjects/member-42", "", null);
        System.out.printf("used: %s of %s%n", field(usage, "used"), field(usage, "max"));
    }
}
