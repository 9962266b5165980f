// Addresses of screens that many parts link to.
import { href } from "./router";

/** The list of jobs with a filter in the language of `jobtree ls`. */
export const jobsHref = (filter: string): string => href("/jobs", { q: filter });

export const jobHref = (id: string): string => href(`/jobs/${id}`);

/** The last digits of an id, as the command line shows it: ids of neighbours begin alike. */
export const shortId = (id: string): string => id.slice(-8);
