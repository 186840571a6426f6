// openai for node: chat, then responses. Arguments as in note.py; SIGINT aborts the stream.
const fs = require("fs");
const OpenAI = require("openai");

const [act, base, model, ask] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, apiKey: process.env.SPARKDASH_KEY });
const parameters = {
  type: "object",
  properties: { path: { type: "string" } },
  required: ["path"],
  additionalProperties: false,
};
const description = "Reads a note.";
const read = (text) => fs.readFileSync(JSON.parse(text).path, "utf8");
let abort = () => process.exit(1);
process.on("SIGINT", () => abort());

async function chat(messages) {
  if (act === "whole") {
    console.log((await client.chat.completions.create({ model, messages })).choices[0].message.content);
    return;
  }
  const tools = [{ type: "function", function: { name: "read_note", description, parameters, function: read } }];
  const stream =
    act === "tools"
      ? client.chat.completions.runTools({ model, messages, tools, stream: true })
      : client.chat.completions.stream({ model, messages });
  abort = () => stream.abort();
  console.log(await stream.finalContent());
}

async function respond(input) {
  if (act === "whole") {
    console.log((await client.responses.create({ model, input })).output_text);
    return;
  }
  const tools = [{ type: "function", name: "read_note", description, parameters, strict: true }];
  const stream = client.responses.stream({ model, input, ...(act === "tools" ? { tools } : {}) });
  abort = () => stream.abort();
  const response = await stream.finalResponse();
  console.log(response.output_text);
  const calls = response.output.filter((item) => item.type === "function_call");
  for (const { id, type, call_id, name, arguments: said } of calls) {
    input.push({ id, type, call_id, name, arguments: said });
    input.push({ type: "function_call_output", call_id, output: read(said) });
  }
  if (calls.length) await respond(input);
}

(async () => {
  await chat([{ role: "user", content: ask }]);
  await respond([{ role: "user", content: ask }]);
})().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
