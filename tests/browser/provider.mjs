// A provider of accounts (OpenID Connect), with a certified implementation. Everybody whom `people` names can sign in, with
// any password.

import { createServer } from "node:http";
import { Provider } from "oidc-provider";

// Starts it on a port of this machine, for one client.
export async function startProvider(port, client, people) {
  const provider = new Provider(`http://localhost:${port}`, {
    clients: [{ ...client, grant_types: ["authorization_code"], response_types: ["code"] }],
    pkce: { required: () => true },
    claims: {
      openid: ["sub"],
      email: ["email", "email_verified"],
      profile: ["preferred_username"],
      groups: ["groups"],
    },
    cookies: { keys: ["a key for the cookies of a test"] },
    features: { devInteractions: { enabled: true } },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
  });
  const server = createServer(provider.callback());
  await new Promise((resolve) => server.listen(port, "localhost", resolve));
  return server;
}
