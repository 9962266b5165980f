// Which screen an address shows. A screen is a row here and a file beside this one; one with a `nav` stands in the navigation.
import type { FunctionComponent } from "preact";
import type { IconName } from "../components/Icon";
import { AddonsScreen } from "./Addons";
import { DecisionsScreen } from "./Decisions";
import { BulkListScreen, BulkScreen } from "./Bulk";
import { JobScreen } from "./Job";
import { JobsScreen } from "./Jobs";
import { LeasesScreen } from "./Leases";
import { MachinesScreen } from "./Machines";
import { OverviewScreen } from "./Overview";
import { QuietScreen } from "./Quiet";
import { SchedulesScreen } from "./Schedules";
import { TokensScreen } from "./Tokens";
import { WallScreen } from "./Wall";
import { WorkersScreen } from "./Workers";

export interface Screen {
  /** "/jobs/:id"; the component gets the values as its properties. */
  pattern: string;
  component: FunctionComponent<Record<string, string>>;
  nav?: {
    label: string;
    icon: IconName;
    /** Goes there after `g`. */
    key: string;
  };
}

const screen = <P extends Record<string, string>>(pattern: string, component: FunctionComponent<P>, nav?: Screen["nav"]): Screen => ({
  pattern,
  component: component as FunctionComponent<Record<string, string>>,
  ...(nav ? { nav } : {}),
});

export const screens: readonly Screen[] = [
  screen("/", OverviewScreen, { label: "Overview", icon: "overview", key: "o" }),
  screen("/jobs", JobsScreen, { label: "Jobs", icon: "jobs", key: "j" }),
  screen("/addons", AddonsScreen, { label: "Addons", icon: "addons", key: "a" }),
  screen("/workers", WorkersScreen, { label: "Workers", icon: "workers", key: "w" }),
  screen("/leases", LeasesScreen, { label: "Leases", icon: "leases", key: "l" }),
  screen("/schedules", SchedulesScreen, { label: "Schedules", icon: "schedules", key: "s" }),
  screen("/machines", MachinesScreen, { label: "Machines", icon: "machines", key: "m" }),
  screen("/quiet", QuietScreen, { label: "Quiet", icon: "quiet", key: "q" }),
  screen("/decisions", DecisionsScreen, { label: "Decisions", icon: "decisions", key: "d" }),
  screen("/tokens", TokensScreen, { label: "Tokens and audit", icon: "tokens", key: "t" }),
  screen("/wall", WallScreen, { label: "Wall", icon: "wall", key: "f" }),
  screen("/jobs/:id", JobScreen),
  screen("/bulk", BulkListScreen),
  screen("/bulk/:id", BulkScreen),
];
