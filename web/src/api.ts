// Calls of the daemon's public HTTP API, with the types of its OpenAPI document: nothing here that any other client could not do.
// A refusal becomes an `ApiError` with the daemon's own words, and a hint where the dashboard knows what to do next.
import type { components, paths } from "./api-types";
import { commands } from "./commands";
import { type Json, parse } from "./json";

export type Schemas = components["schemas"];

const PREFIX = "/api/system/scheduler";
type Method = "get" | "post" | "put" | "delete";
/** The paths of the API without their common beginning, by method. */
export type Path<M extends Method> = {
  [P in keyof paths]: P extends `${typeof PREFIX}${infer Rest}` ? (paths[P] extends { [K in M]: unknown } ? Rest : never) : never;
}[keyof paths];

type Operation<M extends Method, P extends string> = `${typeof PREFIX}${P}` extends infer Full extends keyof paths
  ? paths[Full] extends { [K in M]: infer O }
    ? O
    : never
  : never;
type Parameters<O, Where extends string> = O extends { parameters: { [K in Where]?: infer V } } ? Exclude<V, undefined> : never;
type Body<O> = O extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;
type Ok<O> = O extends { responses: infer R } ? R[keyof R & (200 | 201 | 202 | 204)] : never;
/** What a call returns; null if the answer has no body. */
export type Answer<M extends Method, P extends string> = Ok<Operation<M, P>> extends { content: { "application/json": infer A } } ? A : null;

export interface Options<O> {
  path?: Parameters<O, "path">;
  query?: Parameters<O, "query">;
  body?: Body<O>;
  signal?: AbortSignal | undefined;
}

/** A refusal, in the daemon's words. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: Schemas["ErrorCode"] | "unreachable" | "no_json",
    message: string,
    readonly fields: Schemas["FieldError"][] = [],
    readonly retryAfterSec: number | null = null,
  ) {
    super(message);
    this.name = "ApiError";
  }

  /** What the user can do about it, if the dashboard knows. */
  get hint(): string | null {
    switch (this.code) {
      case "unreachable":
        return "Is the daemon running? The page tries again by itself.";
      case "unauthorized":
        return `The session has ended: sign in again with the link that \`${commands.dashboard()}\` prints.`;
      case "forbidden":
        return "This session's token does not allow it: an admin can make one that does, on the screen of tokens.";
      case "wrong_state":
      case "conflict":
        return "It changed in the meantime: look at its state now.";
      case "too_many":
        return this.retryAfterSec ? `Try again in ${this.retryAfterSec} s.` : "Try again in a moment.";
      default:
        return null;
    }
  }
}

/** The value of the header against cross-site requests, set by session.ts; null where the daemon asks for none. */
let csrf: string | null = null;
export function setCsrf(value: string | null): void {
  csrf = value;
}

let sessionEnded: () => void = () => {};
/** Sets what is called when the daemon no longer knows the session. */
export function onSessionEnd(then: () => void): void {
  sessionEnded = then;
}

let outdated: () => Promise<void> = async () => {};
/** Sets what reads the session anew, if the header's value may be that of an older one. */
export function onOutdated(then: () => Promise<void>): void {
  outdated = then;
}

/** Returns the address of a call, relative to the base. */
export function address(path: string, values?: Record<string, unknown>, query?: Record<string, unknown>): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values?.[name])));
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) search.append(key, String(one));
  }
  const text = search.toString();
  return PREFIX.slice(1) + filled + (text ? `?${text}` : "");
}

async function send(method: Method, url: string, body: unknown, signal: AbortSignal | undefined, type = "application/json"): Promise<Response> {
  const headers: Record<string, string> = { Accept: type };
  if (body !== undefined) headers["Content-Type"] = type;
  if (csrf !== null && method !== "get") headers["X-Jobtree-Csrf"] = csrf;
  let response: Response;
  try {
    response = await fetch(url, {
      method: method.toUpperCase(),
      headers,
      body: body === undefined ? null : type === "application/json" ? JSON.stringify(body) : String(body),
      signal: signal ?? null,
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the daemon does not answer");
  }
  if (response.ok) return response;
  if (response.status === 401) sessionEnded();
  if (response.status === 403 && csrf !== null && method !== "get") {
    const sent = csrf;
    await outdated();
    if (csrf !== sent) return send(method, url, body, signal, type);
  }
  throw await refusal(response);
}

async function refusal(response: Response): Promise<ApiError> {
  const after = Number(response.headers.get("Retry-After"));
  const retry = after > 0 ? after : null;
  try {
    const problem = (await response.json()) as Schemas["Problem"];
    return new ApiError(response.status, problem.code, problem.detail || problem.title, problem.fields ?? [], retry);
  } catch {
    // A proxy in between answers in its own way.
    return new ApiError(response.status, "no_json", `${response.status} ${response.statusText}`.trim(), [], retry);
  }
}

/** Options of any call, after their types were checked. */
interface AnyOptions {
  path?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

async function call<T>(method: Method, path: string, options: AnyOptions): Promise<T> {
  const url = address(path, options.path, options.query);
  const response = await send(method, url, options.body, options.signal);
  const text = await response.text();
  return (text === "" ? null : JSON.parse(text)) as T;
}

/** Reads. `get("/queue/jobs/{job_id}", { path: { job_id } })` */
export function get<P extends Path<"get">>(path: P, options: Options<Operation<"get", P>> = {}): Promise<Answer<"get", P>> {
  return call("get", path, options as AnyOptions);
}

export function post<P extends Path<"post">>(path: P, options: Options<Operation<"post", P>> = {}): Promise<Answer<"post", P>> {
  return call("post", path, options as AnyOptions);
}

export function put<P extends Path<"put">>(path: P, options: Options<Operation<"put", P>> = {}): Promise<Answer<"put", P>> {
  return call("put", path, options as AnyOptions);
}

export function remove<P extends Path<"delete">>(path: P, options: Options<Operation<"delete", P>> = {}): Promise<Answer<"delete", P>> {
  return call("delete", path, options as AnyOptions);
}

/** Reads like `get`, and keeps numbers that a double cannot hold. */
export async function getExact<P extends Path<"get">>(path: P, options: Options<Operation<"get", P>> = {}): Promise<Json> {
  const { path: values, query } = options as AnyOptions;
  const url = address(path, values, query);
  return parse(await (await send("get", url, undefined, options.signal)).text());
}

/** Reads or writes the policy, which is TOML. */
export async function callToml(method: "get" | "put" | "post", path: string, options: { body?: string; signal?: AbortSignal } = {}): Promise<string> {
  return (await send(method, address(path), options.body, options.signal, "application/toml")).text();
}
