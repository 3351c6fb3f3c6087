// Starts `growc lsp` for recipes.

const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("growc").get("path");
  client = new LanguageClient(
    "growc",
    { command, args: ["lsp"] },
    { documentSelector: [{ language: "grow" }] },
  );
  return client.start();
};

exports.deactivate = () => client?.stop();
