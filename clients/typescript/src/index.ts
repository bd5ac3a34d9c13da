/** Claims units of perdiem before a backend gives something. README.md shows how. */
const USER_AGENT = "perdiem-typescript/0.1.0";
const [FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, HOLD_SECONDS] = [0.1, 2, 60];

/** A claim. `key` is its Idempotency-Key: one for each thing that you give, such as an order. */
export interface Claim {
  policy: string;
  subject: string;
  key: string;
  /** Default: 1. */
  units?: number;
  metadata?: Record<string, unknown>;
  /** Makes the grant a hold, which lapses after this time unless it is confirmed. */
  holdSeconds?: number;
}

/** A limit and its usage, in units. An instant is null if it never comes. */
export interface Limit {
  per: string;
  kind: string;
  max: number;
  used: number;
  remaining: number;
  moreAt: Date | null;
  resetsAt: Date | null;
}

export interface Grant {
  id: string;
  policy: string;
  subject: string | null;
  units: number;
  state: "held" | "granted" | "reversed" | "lapsed";
  grantedAt: Date;
  /** Null if the grant is not a hold. */
  heldUntil: Date | null;
  metadata: Record<string, unknown> | null;
}

export interface Granted {
  grant: Grant;
  limits: Limit[];
  /** The key was granted before, perhaps by an attempt of this very call whose answer was lost. */
  replayed: boolean;
  /** The ledger does not have the grant yet. */
  provisional: boolean;
}

type Json = Record<string, any>;
type Read<T> = (answer: Json) => T | PerdiemError;
type Hold = { hold?: boolean };

/** A problem, by its `code`. The client has two codes of its own: `no-answer`, with the `status` null, and
 *  `unreadable` for an answer that is not perdiem's, such as a redirect. `retryAfter` is in seconds. */
export class PerdiemError extends Error {
  readonly code: string;
  readonly detail: string;
  readonly requestId: string | null;
  /** Whether the claim may be granted all the same: send it again, with the same key. */
  readonly mayBeGranted: boolean;

  constructor(problem: Json, readonly status: number | null, readonly retryAfter: number | null = null) {
    super(`${problem.code}: ${problem.detail} (status ${status}, request ${problem.request_id})`);
    this.name = new.target.name;
    this.code = problem.code;
    this.detail = problem.detail;
    this.requestId = problem.request_id ?? null;
    this.mayBeGranted = canRetry(this) || this.code === "unreadable";
  }
}

/** The claim is not granted. `retryAfter` has the seconds until it would be; null if that is unknown. */
export class NotGranted extends PerdiemError {}

/** The units fit at `fitsAt`, or at no known instant (null). `violated` names the limits without room. */
export class Denied extends NotGranted {
  readonly fitsAt: Date | null;
  readonly violated: string[];
  readonly limits: Limit[];

  constructor(problem: Json, status: number | null, retryAfter: number | null = null) {
    super(problem, status, retryAfter);
    this.fitsAt = readInstant(problem.fits_at);
    this.violated = problem["violated-policies"] ?? [];
    this.limits = problem.limits.map(readLimit);
  }
}

/** An admin has blocked the subject. */
export class Blocked extends NotGranted {}
/** The policy is paused, has not begun, or has ended. */
export class Inactive extends NotGranted {}
/** The grant of this key was reversed. To claim again, use another key. */
export class Reversed extends NotGranted {}
/** The hold of this key lapsed. To claim again, use another key. */
export class Lapsed extends NotGranted {}

const REFUSALS = new Map<string, typeof PerdiemError>([
  ["quota-exceeded", Denied], ["subject-blocked", Blocked], ["policy-inactive", Inactive],
  ["grant-reversed", Reversed], ["hold-lapsed", Lapsed],
]);

export interface Options {
  /** The time of a whole call with all its attempts. Default: 10. */
  deadlineSeconds?: number;
  /** The time of one attempt, which must be longer than perdiem's two seconds. Default: 4. */
  attemptSeconds?: number;
  /** Gets errors that no caller gets, such as that of a reversal after a failure. Default: `console.error`. */
  onError?: (error: unknown) => void;
}

/** Sends claims. A call sends its request again, with the same key, after 503, `claim-in-progress` and broken
 *  connections, until its deadline. All methods reject with a PerdiemError. */
export class Client {
  readonly #url: string;
  readonly #secret: string;
  readonly #deadline: number;
  readonly #attempt: number;
  readonly onError: (error: unknown) => void;

  constructor(url: string, secret: string, options: Options = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#secret = secret.trim();
    this.#deadline = (options.deadlineSeconds ?? 10) * 1000;
    this.#attempt = (options.attemptSeconds ?? 4) * 1000;
    this.onError = options.onError ?? console.error;
    if (!/^[!-~]+$/.test(this.#secret)) throw new TypeError("the API key is empty, or has a wrong character");
  }

  /** Claims units. Rejects with a NotGranted: Denied, Blocked, Inactive, Reversed or Lapsed. */
  claim(claim: Claim): Promise<Granted> {
    return this.#ask(readGranted, ["policies", claim.policy, "claims"], claimBody(claim), claim.key);
  }

  /** Rejects with what the claim would reject with now, or resolves to the limits it would leave. Counts nothing. */
  dryRun(claim: Claim): Promise<Limit[]> {
    return this.#ask(readDryRun, ["policies", claim.policy, "claims"], { ...claimBody(claim), dry_run: true });
  }

  /** Sends 1 to 1000 claims; with `atomic` all are granted, or none. Resolves to what each of them got, in their
   *  order: send one that `mayBeGranted` again. */
  batch(claims: Claim[], { atomic = false } = {}): Promise<(Granted | PerdiemError)[]> {
    const items = claims.map((claim) => ({ ...claimBody(claim), policy: claim.policy, idempotency_key: claim.key }));
    return this.#ask(readItems, ["claims"], { claims: items, atomic });
  }

  /** Gives back what is left of a grant, or `units` with a `key` of their own. Rejects with Reversed, Lapsed. */
  reverse(id: string, reason: string, { units, key }: { units?: number; key?: string } = {}): Promise<Grant> {
    return this.#ask((answer) => readGrant(answer.grant), ["grants", id, "reversal"], { reason, units }, key);
  }

  /** Makes a hold final; with `units` only these, and the others return. Rejects with Reversed, Lapsed. */
  confirm(id: string, { units }: { units?: number } = {}): Promise<Grant> {
    return this.#ask((answer) => readGrant(answer.grant), ["grants", id, "confirmation"], { units });
  }

  /** A subject's limits now. You need not ask before a claim, whose answer has the limits too. */
  usage(policy: string, subject: string): Promise<Limit[]> {
    return this.#ask((answer) => answer.limits.map(readLimit), ["policies", policy, "subjects", subject]);
  }

  /** Runs a function after a claim. Its success confirms the hold, which has 60 seconds unless the claim says more.
   *  Its failure reverses the grant, unless it is a replay: an earlier run with this key may have given what the
   *  grant is for. Without a `hold` a crash leaves the units used. */
  async withClaim<T>(claim: Claim, run: (granted: Granted) => T | Promise<T>, options: Hold = {}): Promise<T> {
    const granted = await this.claim(withHold(claim, options));
    const result = await Promise.resolve(granted).then(run).catch(async (failure: unknown) => {
      await this.settle(granted, false);
      throw failure;
    });
    await this.settle(granted, true);
    return result;
  }

  /** Ends a claim by hand, as `withClaim` does. A reversal that fails is told to `onError` only. */
  async settle({ grant, replayed }: Granted, isSuccess: boolean): Promise<void> {
    if (isSuccess && grant.state === "held") await this.confirm(grant.id);
    if (isSuccess || replayed) return;
    const key = `${grant.id}.reversal`;
    await this.reverse(grant.id, "the handler failed", { key }).catch(this.onError);
  }

  async #ask<T>(read: Read<T>, path: string[], body?: object, key?: string): Promise<T> {
    const url = [this.#url, "v1", ...path.map(encodeURIComponent)].join("/");
    const headers = new Headers({ Authorization: `Bearer ${this.#secret}`, "User-Agent": USER_AGENT });
    if (key !== undefined) headers.set("Idempotency-Key", key);
    const [method, text] = body ? ["POST", JSON.stringify(body)] : ["GET", null];
    const request: RequestInit = { method, headers, body: text, redirect: "manual" };
    const endsAt = performance.now() + this.#deadline;
    for (let longestPause = FIRST_PAUSE_SECONDS; ; longestPause = Math.min(LONGEST_PAUSE_SECONDS, 2 * longestPause)) {
      const milliseconds = Math.min(this.#attempt, endsAt - performance.now());
      const signal = AbortSignal.timeout(Math.max(1, Math.floor(milliseconds)));
      const answer = await attempt(url, { ...request, signal }, read);
      if (!(answer instanceof PerdiemError)) return answer;
      const pause = ((answer.retryAfter ?? 0) + longestPause * (0.5 + Math.random() / 2)) * 1000;
      if (!canRetry(answer) || performance.now() + pause >= endsAt) throw answer;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

const canRetry = ({ status, code }: PerdiemError) => [null, 503].includes(status) || code === "claim-in-progress";
const claimBody = ({ subject, units = 1, metadata, holdSeconds }: Claim) =>
  ({ subject, units, metadata, hold_seconds: holdSeconds });
const withHold = (claim: Claim, { hold = true }: Hold): Claim =>
  hold ? { holdSeconds: HOLD_SECONDS, ...claim } : claim;

async function attempt<T>(url: string, request: RequestInit, read: Read<T>): Promise<T | PerdiemError> {
  let response: Response, text: string;
  try {
    response = await fetch(url, request);
    text = await response.text();
  } catch (error) {
    return new PerdiemError({ code: "no-answer", detail: String(error) }, null);
  }
  const retryAfter = readSeconds(response.headers.get("retry-after"));
  const known = { detail: "this is no answer of perdiem", request_id: response.headers.get("x-request-id") };
  try {
    const answer = { ...known, ...JSON.parse(text), status: response.status };
    return response.ok ? read(answer) : readProblem(answer, retryAfter);
  } catch {
    return new PerdiemError({ ...known, code: "unreadable" }, response.status, retryAfter);
  }
}

function readProblem(problem: Json, retryAfter: number | null = null): PerdiemError {
  const code: string = problem.code ?? problem.type.split(/[#/]/).at(-1);
  return new (REFUSALS.get(code) ?? PerdiemError)({ ...problem, code }, problem.status, retryAfter);
}

function readGranted(answer: Json): Granted {
  const { grant, limits, status, provisional = false } = answer;
  return { grant: readGrant(grant), limits: limits.map(readLimit), replayed: status === 200, provisional };
}

function readDryRun(answer: Json): Limit[] | PerdiemError {
  if (answer.outcome === "granted") return answer.limits.map(readLimit);
  return new Denied({ ...answer, code: "quota-exceeded", detail: "says a dry run" }, answer.status);
}

const readItems = (answer: Json): (Granted | PerdiemError)[] =>
  answer.items.map((item: Json) => (item.grant ? readGranted(item) : readProblem(item)));

const readInstant = (text?: string | null): Date | null => (text ? new Date(text) : null);
const readLimit = ({ per, kind, max, used, remaining, more_at, resets_at }: Json): Limit =>
  ({ per, kind, max, used, remaining, moreAt: readInstant(more_at), resetsAt: readInstant(resets_at) });

function readGrant({ id, policy, subject = null, units, state, metadata = null, ...more }: Json): Grant {
  if (typeof id !== "string") throw new TypeError("a grant has an id");
  const [grantedAt, heldUntil] = [new Date(more.granted_at), readInstant(more.held_until)];
  return { id, policy, subject, units, state, grantedAt, heldUntil, metadata };
}

function readSeconds(retryAfter: string | null): number | null {
  if (retryAfter && /^\d+$/.test(retryAfter)) return Number(retryAfter);
  const date = Date.parse(retryAfter ?? "");
  return Number.isNaN(date) ? null : Math.max(0, (date - Date.now()) / 1000);
}

interface ExpressResponse {
  statusCode: number;
  locals: Json;
  setHeader(name: string, value: string): unknown;
  end(...parts: any[]): any;
}

/** A middleware for Express that claims before the handlers after it, which find the Granted in `response.locals`.
 *  A status below 400 is their success. Their answer ends after the confirmation or the reversal, of which `onError`
 *  gets the errors. Refusals are answered with 429, 403 or 409, and a claim that is not decided with 503. */
export function claimFirst<R>(client: Client, claimOf: (request: R) => Claim, options: Hold = {}) {
  return async (request: R, response: ExpressResponse, next: (error?: unknown) => void): Promise<void> => {
    const end = response.end.bind(response);
    try {
      const granted = await client.claim(withHold(claimOf(request), options));
      response.locals.granted = granted;
      response.end = (...parts) => {
        response.end = end;
        client.settle(granted, response.statusCode < 400).catch(client.onError).then(() => end(...parts));
        return response;
      };
    } catch (error) {
      return error instanceof PerdiemError ? refuse(response, error, client) : next(error);
    }
    next();
  };
}

function refuse(response: ExpressResponse, error: PerdiemError, { onError }: Client): void {
  const refused = error instanceof Denied ? 429 : error instanceof Blocked ? 403 : 409;
  const status = error instanceof NotGranted ? refused : 503;
  const { code, detail } = status === 503 ? { code: "undecided", detail: "try again" } : error;
  if (status === 503) onError(error);
  response.statusCode = status;
  response.setHeader("Content-Type", "application/problem+json");
  if (error.retryAfter !== null) response.setHeader("Retry-After", String(Math.ceil(error.retryAfter)));
  response.end(JSON.stringify({ code, status, detail }));
}
