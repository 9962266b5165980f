import { render } from "preact";
import { App } from "./app";
import { listenToKeys } from "./keys";
import { listen } from "./router";
import "./styles/app.css";
import "./styles/screens.css";
import "./styles/jobs.css";
import { listenToTheme } from "./theme";

listen();
listenToKeys();
listenToTheme();
const root = document.getElementById("app");
if (root) render(<App />, root);
