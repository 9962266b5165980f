// What an address shows that names no screen.
import { EmptyState } from "../components/EmptyState";
import { Page } from "../components/Page";
import { href, path } from "../router";

export function NotFound() {
  return (
    <Page title="Not found">
      <EmptyState title={`There is no screen at ${path.value}`}>
        Go to the <a href={href("/jobs")}>list of jobs</a>, or choose a screen from the navigation.
      </EmptyState>
    </Page>
  );
}
