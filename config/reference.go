package config

import (
	"bytes"
	"fmt"
	"strings"
)

// about says what a setting, or a section of them, is for. A name that is not
// here is empty, which a test refuses.
func about(name string) string {
	return map[string]string{
		"enabled":                        "`false` turns everything off, whatever else is set; `true` turns mode `off` into `shadow`.",
		"force_enforce":                  "`true` is mode `enforce`, over the file.",
		"e2b_api_key":                    "The key of the runtime `e2b`.",
		"mode":                           "`shadow` computes and stores everything and refuses nothing; `enforce` refuses what is not allowed; `off` judges nothing.",
		"profile":                        "What tiers mean for runs that name none: `coding` for coding agents, in whose workspace they work; `atom` for agents with a data directory.",
		"tier":                           "The tier of runs whose door knows none better.",
		"phases":                         "Which steps compute. What does not compute finds nothing.",
		"phases.whitelist":               "Phase A: the tools of the tier.",
		"phases.fs":                      "Phase B: the paths of the tier.",
		"phases.tripwires":               "Phase C: effects that no call may have.",
		"phases.caps":                    "Phase C: what a run may use in all.",
		"phases.egress":                  "Phase D: the hosts of the tier.",
		"phases.provenance":              "Phase E: where the words of a call came from.",
		"phases.judge":                   "Phase E: a model is asked about what cannot be taken back. Needs `judge.provider`.",
		"transactions":                   "Tools that modify files run in a transaction.",
		"policy_tenant_override":         "The overrides below `tenants` are honoured.",
		"caps":                           "Bounds of one run.",
		"caps.tool_calls":                "Calls of a run.",
		"caps.exec_seconds":              "Seconds in which a run's tools execute.",
		"caps.bytes_written":             "Bytes that a run writes.",
		"caps.cost_usd":                  "Dollars that a run spends.",
		"runtime":                        "What holds a program that is run; `auto` is the strongest that this machine has.",
		"vm":                             "What a virtual machine gets.",
		"vm.mem_mb":                      "Memory in MiB.",
		"vm.vcpus":                       "Processors.",
		"vm.boot_timeout_seconds":        "Seconds until it must be up.",
		"judge":                          "The model that judges, and how long it is waited for.",
		"judge.timeout_seconds":          "Seconds that an answer may take.",
		"judge.circuit_threshold":        "Failures in succession after which it is not asked for a while.",
		"judge.circuit_cooldown_seconds": "Seconds of that while.",
		"judge.provider":                 "Who is asked; `openai` is any server that speaks its protocol. With `command` a program of yours; with the others `judge.model` is needed.",
		"judge.model":                    "The model's name.",
		"judge.base_url":                 "The URL of the server; without this key the provider's own. A key is sent by `https` only, or to this machine.",
		"judge.key_env":                  "The variable that holds the key.",
		"judge.command":                  "With provider `command`: the program, by its name or absolute path, and its arguments.",
		"judge.input_usd":                "The price of a million tokens that it reads.",
		"judge.output_usd":               "The price of a million tokens that it writes.",
		"read":                           "Further paths that every tier may read.",
		"write":                          "Further paths that every tier may write.",
		"allow_hosts":                    "Further hosts that may be reached: `example.com`, or `*.example.com` for all below it, with `:port` if need be.",
		"allow_tools":                    "Tools that every tier may use: `NAME`, `SERVER/NAME` or `group:GROUP`.",
		"db":                             "The audit database; without this key `cordon/cordon.db` in the user's state directory.",
		"tenants":                        "What each tenant's runs get less than others. It counts with `policy_tenant_override` only, and never widens.",
		"tools":                          "Your own tools, or corrections to those that Cordon knows.",
		"tests":                          "Calls with what is to become of them in mode `enforce`. `cordon policy check FILE` judges them; nothing else reads them.",
		"provenance":                     "How the origin of texts is kept and shown.",
		"provenance.deliver_tagged":      "Results that nobody vouches for reach the agent within tags.",
		"provenance.datamark":            "The words within the tags are marked too.",
		"provenance.max_text_mb":         "MiB of text that a run's index covers.",
		"proposals":                      "Calls that wait for a person.",
		"proposals.ttl_seconds":          "Seconds that a proposal waits, and that an approval can be taken up.",
		"egress":                         "What the proxies read beside the hosts.",
		"egress.ecosystems":              "Package ecosystems whose registries, as you have configured them, may be reached; `none` drops those that were named before it. Without this key they are the profile's own.",
		"egress.llm":                     "Model servers that programs reach by a base URL of the proxy, which adds the key.",
		"egress.prices":                  "A file of models' prices.",
		"sandbox":                        "What runtimes with an image of their own start from; without these keys the runtime's default.",
		"sandbox.image":                  "The name of a container image.",
		"sandbox.rootfs":                 "The directory of a file system.",
		"gateway":                        "What the MCP gateway serves, and to whom. Without tokens nobody may use it.",
		"gateway.listen":                 "Where it listens; `0.0.0.0:port` is every address.",
		"gateway.allowed_hosts":          "Further values of the header `Host` that are served.",
		"gateway.allowed_origins":        "Further values of the header `Origin` that are served.",
		"gateway.max_body_mb":            "MiB of a request's body.",
		"gateway.max_header_kb":          "KiB of a request's headers.",
		"gateway.max_concurrent":         "Requests at once.",
		"gateway.max_sessions":           "Sessions at once.",
		"gateway.timeout_seconds":        "Seconds that a request may take.",
		"gateway.servers":                "The servers behind it.",
		"gateway.tokens":                 "The bearer tokens, and what each makes of its bearer.",
	}[name]
}

// Reference is the table of the file's keys in Markdown, made from the same
// table that reads it. tools describes the entries of the key "tools", which
// another package reads.
func Reference(tools string) []byte {
	var b bytes.Buffer
	all := table()
	b.WriteString("## Single settings\n")
	writeSettings(&b, all, func(s *setting) bool { return !s.noFile && !strings.Contains(s.name, ".") })
	// A section's settings do not stand together in the table.
	done := map[string]bool{}
	for i := range all {
		section, _, nested := strings.Cut(all[i].name, ".")
		if !nested || done[section] {
			continue
		}
		done[section] = true
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", section, about(section))
		writeSettings(&b, all, func(s *setting) bool { return strings.HasPrefix(s.name, section+".") })
	}
	for _, s := range all {
		switch {
		case s.form.kind == elsewhere:
			fmt.Fprintf(&b, "\n## Entries of %s\n\n%s\n\n%s", s.name, about(s.name), tools)
		case s.form.fields != nil:
			fmt.Fprintf(&b, "\n## Entries of %s\n\n%s\n\n| Key | Value | Needed | What it does |\n|---|---|---|---|\n", s.name, about(s.name))
			writeFields(&b, "", s.form.fields())
		}
	}
	b.WriteString("\n## Variables without a key\n\n| Variable | What it does |\n|---|---|\n")
	for i := range all {
		if s := &all[i]; s.noFile {
			fmt.Fprintf(&b, "| %s | %s |\n", alsoSet(s), cell(about(s.name)))
		}
	}
	return b.Bytes()
}

// writeSettings writes a table of the settings that are chosen.
func writeSettings(b *bytes.Buffer, all []setting, chosen func(*setting) bool) {
	b.WriteString("\n| Key | Value | Default | Also set by | What it does |\n|---|---|---|---|---|\n")
	defaults := doors()
	for i := range all {
		s := &all[i]
		if !chosen(s) {
			continue
		}
		value := s.show(&defaults)
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", s.name, cell(s.form.wanted()), value, alsoSet(s), cell(about(s.name)))
	}
}

func writeFields(b *bytes.Buffer, prefix string, fields []field) {
	for _, f := range fields {
		needed := ""
		if f.required {
			needed = "yes"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", prefix, f.name, cell(f.form.wanted()), needed, cell(f.about))
		if f.form.fields != nil {
			writeFields(b, prefix+f.name+".", f.form.fields())
		}
	}
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func alsoSet(s *setting) string {
	var list []string
	if s.flag != "" {
		list = append(list, "`--"+s.flag+"`")
	}
	if s.env != "" {
		list = append(list, "`"+s.env+"`")
	}
	return strings.Join(list, ", ")
}
