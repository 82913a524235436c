import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

/** Where a server answers while the pages are being built; LEGATO_TOKEN asks as that token's user, without a log in. */
const server = process.env.LEGATO_SERVER ?? "http://127.0.0.1:7070";
const token = process.env.LEGATO_TOKEN;

export default defineConfig({
  base: "./",
  plugins: [react()],
  resolve: { alias: { "@": new URL("./src", import.meta.url).pathname } },
  build: {
    outDir: "../src/legato/server/pages",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      "/api": {
        target: server,
        changeOrigin: true,
        headers: { origin: server, ...(token ? { authorization: `Bearer ${token}` } : {}) },
      },
      "/version": { target: server, changeOrigin: true },
    },
  },
  test: {
    environment: "node",
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
    unstubGlobals: true,
    testTimeout: 30_000,
    setupFiles: ["src/test-setup.ts"],
  },
});
