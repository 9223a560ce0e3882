package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
	"github.com/spf13/cobra"
)

func policySchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of cordon.yaml, for editors",
		Long: `Print the JSON Schema (2020-12) of cordon.yaml, for editors that complete and
check files by one. It is made from the table that reads the file. What only
loading can tell is said by "cordon policy check".`,
		Args: cobra.NoArgs,
	}
	reference := cmd.Flags().Bool("reference", false, "print the reference in Markdown instead")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := referencePage()
		if !*reference {
			schema, err := fileSchema()
			if err != nil {
				return err
			}
			out = append(schema, '\n')
		}
		_, err := cmd.OutOrStdout().Write(out)
		return err
	}
	return cmd
}

// fileSchema is the schema of the file with that of its tools.
func fileSchema() ([]byte, error) {
	properties := map[string]any{}
	for _, k := range toolKeys() {
		k.schema["description"] = strings.ReplaceAll(k.about, "`", "")
		properties[k.name] = k.schema
	}
	tool, err := json.Marshal(map[string]any{
		"type": "object", "properties": properties, "required": []string{"names"}, "additionalProperties": false,
	})
	if err != nil {
		return nil, err
	}
	return config.Schema(tool)
}

// toolKey is one key of an entry of tools, as package toolspec reads it.
type toolKey struct {
	name, value, about string
	schema             map[string]any
}

func toolKeys() []toolKey {
	truth := func() map[string]any {
		return map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, map[string]any{"enum": []string{"yes", "no", "on", "off"}}}}
	}
	text := map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1}
	texts := func() map[string]any {
		return map[string]any{"anyOf": []any{text, map[string]any{"type": "array", "items": text}}}
	}
	roles := named(toolspec.Role.String, toolspec.ParseRole)
	groups := named(toolspec.Group.String, toolspec.ParseGroup)
	sample := map[string]any{"anyOf": []any{text, map[string]any{
		"type": "object", "required": []string{"tool"}, "properties": map[string]any{
			"server": map[string]any{"type": "string"}, "tool": text,
			"roles": map[string]any{"type": "object", "additionalProperties": map[string]any{"enum": roles}},
		},
	}}}
	samples := func() map[string]any { return map[string]any{"type": "array", "items": sample} }
	const yes = "`true` or `false`"
	return []toolKey{
		{"names", "list of: name", "Needed. Names of the tool in any usual spelling, `*` at an end for more.", texts()},
		{"server", "list of: name", "Servers whose tool it is.", texts()},
		{"group", "`" + strings.Join(groups, "`, `") + "`", "What tiers know it by.", map[string]any{"enum": groups}},
		{"irreversible", yes, "What it does cannot be taken back.", truth()},
		{"outbound", yes, "It sends what it is given to others.", truth()},
		{"language", "name", "The language of its code.", map[string]any{"type": []string{"string", "number", "boolean"}}},
		{"root", "`list`", "A path that is not given is the workspace, which it lists.", map[string]any{"enum": []string{toolspec.List.String()}}},
		{"remote", yes, "Its paths are names on another system.", truth()},
		{"reads_env", yes, "It gives out its server's environment.", truth()},
		{"server_only", yes, "The names mean this only with the server.", truth()},
		{"bare", yes, "The names mean this only without a server.", truth()},
		{"args", "mapping of roles to lists of names", "What its arguments are. Roles: `" + strings.Join(roles, "`, `") + "`.", map[string]any{
			"type": "object", "propertyNames": map[string]any{"enum": roles}, "additionalProperties": texts(),
		}},
		{"read_when", "mapping of arguments to lists of values", "It only reads where one of them has such a value.", map[string]any{
			"type": "object", "additionalProperties": map[string]any{"type": "array", "items": map[string]any{"type": []string{"string", "number", "boolean"}}},
		}},
		{"weaken", yes, "A role may be taken from a tool that Cordon knows.", truth()},
		{"match", "list of: name, or {server, tool, roles}", "Names that must be this tool, with the roles of arguments; checked when the file loads.", samples()},
		{"not_match", "list of: name, or {server, tool}", "Names that must not be this tool; checked when the file loads.", samples()},
	}
}

// named lists the words of a type whose values count up from zero.
func named[T ~uint8](spell func(T) string, parse func(string) (T, error)) []string {
	var list []string
	for v := T(0); ; v++ {
		word := spell(v)
		if back, err := parse(word); err != nil || back != v {
			return list
		}
		list = append(list, word)
	}
}

const referenceHead = "# cordon.yaml\n\n" +
	"<!-- Made by: go run ./cmd/cordon policy schema --reference >docs/cordon.yaml.md -->\n\n" +
	"Cordon reads one file: that of `--config`, else of `$CORDON_CONFIG`, else `cordon/cordon.yaml` in the\n" +
	"user's configuration directory. A file in the workspace is not looked at: the agent can write there.\n\n" +
	"A flag counts over a variable, a variable over the file, the file over the default; lists (`read`,\n" +
	"`write`, `allow_hosts`, `allow_tools`) add up. A key that is unknown, stands twice or has a value that\n" +
	"cannot be read is an error, and then nothing is loaded. Where a list is wanted, one value will do.\n\n" +
	"`cordon policy schema` prints a JSON Schema of the file, for an editor: save it, and begin the file\n" +
	"with `# yaml-language-server: $schema=cordon.schema.json`. `cordon policy check FILE` says what is\n" +
	"wrong in a file, with its lines, and runs its tests:\n\n" +
	"```yaml\n" + referenceExample + "```\n\n" +
	"A test is one call in a run of its own, judged in mode `enforce` with the file's other settings and no\n" +
	"variables but those that the file names. Nothing is run, and the judge is not asked. `~` is your home;\n" +
	"`{workspace}` is an empty directory.\n\n"

const referenceExample = `mode: enforce
tier: supervised
read: [/srv/reference]
allow_hosts: [docs.example.com]
tools:
  - names: [deploy_site]
    group: productivity_write
    irreversible: true
    args: {read: [bundle], text: [comment]}
    match: [deploy_site, {tool: mcp__hosting__deploySite, roles: {bundle: read}}]
    not_match: [deploy_other]
tests:
  - name: the workspace can be written
    tool: Write
    args: {file_path: "{workspace}/notes.md", content: hello}
    want: allowed
  - name: keys cannot be deployed
    tool: deploy_site
    args: {bundle: ~/.ssh/id_rsa}
    want: blocked
  - name: a student does not write
    tool: Write
    args: {file_path: "{workspace}/notes.md", content: hello}
    tier: student
    want: blocked
`

func referencePage() []byte {
	var tools strings.Builder
	tools.WriteString("| Key | Value | What it does |\n|---|---|---|\n")
	for _, k := range toolKeys() {
		fmt.Fprintf(&tools, "| `%s` | %s | %s |\n", k.name, k.value, k.about)
	}
	return append([]byte(referenceHead), config.Reference(tools.String())...)
}
