import { expect, test } from "vitest";
import { apiQuery, cliFilter, complete, filterOfQuery, parseFilter, withTerm, words } from "./filter";

test("each word narrows, and states may be groups", () => {
  expect(parseFilter('state:failed,waiting addon:photos type:index tag:"two words" quarantined red fox').filter).toEqual({
    state: ["QUEUED", "DISPATCHING", "FAILED"], addon_id: "photos", job_type: "index", tag: "two words", quarantined: true, text: "red fox",
  });
  expect(parseFilter("state:open state:ended").filter.state).toHaveLength(6);
  expect(apiQuery(parseFilter("").filter)).toEqual({});
});

test("digits of an id are an id, words are text", () => {
  expect(parseFilter("019a3f").filter.id).toBe("019a3f");
  expect(parseFilter("019a3f42-0000-7000-8000-0123456789ab").filter.id).toBe("019a3f42-0000-7000-8000-0123456789ab");
  for (const text of ["facade", "cafe", "12345", '"019a3f"', "019a3g"]) expect(parseFilter(text).filter.id, text).toBeUndefined();
  expect(parseFilter('"quarantined"').filter).toEqual({ state: [], text: "quarantined" });
  expect(parseFilter("id:ab").filter.id).toBe("ab");
});

test("ends are counted back from now, or since a time", () => {
  const now = Date.parse("2026-01-02T03:04:05Z");
  const since = (text: string) => apiQuery(parseFilter(text).filter, now).ended_since;
  expect(since("state:failed ended:1h")).toBe("2026-01-02T02:04:05.000Z");
  expect(since("ended:1d12h")).toBe("2025-12-31T15:04:05.000Z");
  expect(since("ended:2026-01-01T00:00:00+01:00")).toBe("2025-12-31T23:00:00.000Z");
  expect(parseFilter("ended:soon ended:2026-01-01").problems).toHaveLength(2);
  expect(apiQuery(parseFilter("ended:1h").filter, now)).not.toHaveProperty("ended");
  // A bulk action shows the time that it was made with.
  expect(cliFilter(filterOfQuery({ state: ["FAILED"], ended_since: "2026-01-02T02:04:05Z" } as Parameters<typeof filterOfQuery>[0]))).toEqual(["state:failed", "ended:2026-01-02T02:04:05Z"]);
});

test("what is not understood is said", () => {
  expect(parseFilter("state:wrong").problems[0]).toMatch(/no state "wrong"/);
  expect(parseFilter("addon:a addon:b").problems).toEqual(["addon can be given once"]);
  expect(parseFilter("addon:a/b").problems).toHaveLength(1);
  expect(parseFilter("state: addon: tag:").problems).toEqual([]);
  expect(parseFilter("http://host/x").filter.text).toBe("http://host/x");
});

test("a term is put in the place of the one before", () => {
  expect(withTerm("state:queued addon:a red", "state", "failed")).toBe("state:failed addon:a red");
  expect(withTerm('tag:"two words" red', "tag", null)).toBe("red");
  expect(withTerm("red", "tag", "two words")).toBe('tag:"two words" red');
  expect(words(' a "b c"d  ')).toMatchObject([{ text: "a" }, { text: "b cd", quoted: true }]);
});

test("completion offers keys, then values", () => {
  const known = { addons: ["photos", "mail"], types: ["index"], tags: ["two words"] };
  const offers = (input: string, at = input.length) => complete(input, at, known).suggestions.map(({ word }) => word);
  expect(offers("")).toContain("state:");
  expect(offers("red ad")).toEqual(["addon:"]);
  expect(offers("addon:o")).toEqual(["addon:photos"]);
  expect(offers("tag:")).toEqual(['tag:"two words"']);
  expect(offers("state:queued,f")).toEqual(["state:queued,failed"]);
  expect(complete("addon:m red", 7, known)).toMatchObject({ from: 0, to: 7 });
  expect(offers("addon:photos")).toEqual([]);
});

test("the same filter for the terminal", () => {
  expect(cliFilter(parseFilter('tag:"a b" state:failed red').filter)).toEqual(["state:failed", 'tag:"a b"', "red"]);
});
