// AI SDK, through its OpenAI-compatible provider. Arguments as in note.py; SIGINT aborts the stream.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

// an ES module is looked for beside the file that imports it, not along NODE_PATH
const require = createRequire(path.join(process.env.NODE_PATH, "index.js"));
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { generateText, jsonSchema, stepCountIs, streamText, tool } = require("ai");

const [act, baseURL, model, prompt] = process.argv.slice(2);
const sparkdash = createOpenAICompatible({
  name: "sparkdash",
  baseURL,
  apiKey: process.env.SPARKDASH_KEY,
  includeUsage: true,
});
const abort = new AbortController();
process.on("SIGINT", () => abort.abort());

const read_note = tool({
  description: "Reads a note.",
  inputSchema: jsonSchema({ type: "object", properties: { path: { type: "string" } }, required: ["path"] }),
  execute: ({ path }) => fs.readFileSync(path, "utf8"),
});
const asked = { model: sparkdash(model), prompt, abortSignal: abort.signal };

async function stream(more) {
  let failure;
  const answer = streamText({ ...asked, ...more, onError: ({ error }) => (failure = error) });
  let text = "";
  for await (const part of answer.textStream) text += part;
  if (failure || abort.signal.aborted) throw failure ?? new Error("aborted");
  return text;
}

const answers = {
  whole: async () => (await generateText(asked)).text,
  tools: () => stream({ tools: { read_note }, stopWhen: stepCountIs(3) }),
  stream: () => stream({}),
};
answers[act]().then(console.log, (error) => {
  console.error(String(error));
  process.exit(1);
});
