import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { applyTheme } from "./layout/theme";

applyTheme();
const root = document.getElementById("root");
if (!root) throw new Error("The page has no element with the id root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
