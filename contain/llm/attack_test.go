package llm

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/google/go-cmp/cmp"
)

func TestPathsAndMethods(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		rule                     string
	}{
		{"a message", "POST", "/anthropic/v1/messages", messagesBody, 200, ""},
		{"a beta message", "POST", "/anthropic/v1/messages?beta=true", messagesBody, 200, ""},
		{"a count of tokens", "POST", "/anthropic/v1/messages/count_tokens", messagesBody, 200, ""},
		{"the list of models", "GET", "/openai/v1/models", "", 200, ""},
		{"a page of models", "GET", "/gemini/v1beta/models?pageSize=5&pageToken=Ab%3D", "", 200, ""},
		{"one model", "GET", "/openai/v1/models/ft:gpt-4o:org::id", "", 200, ""},
		{"the placeholder in the query", "GET", "/gemini/v1beta/models?key={key}", "", 200, ""},

		{"an upload of files", "POST", "/anthropic/v1/files", "{}", 404, RulePath},
		{"a batch", "POST", "/anthropic/v1/messages/batches", messagesBody, 404, RulePath},
		{"a list of batches", "GET", "/openai/v1/batches", "", 404, RulePath},
		{"administration", "GET", "/anthropic/v1/organizations/users", "", 404, RulePath},
		{"a deletion of a model", "DELETE", "/openai/v1/models/ft:gpt-4o", "", 405, RulePath},
		{"fine tuning", "POST", "/openai/v1/fine_tuning/jobs", "{}", 404, RulePath},
		{"an assistant", "POST", "/openai/v1/assistants", "{}", 404, RulePath},
		{"a vector store", "POST", "/openai/v1/vector_stores", "{}", 404, RulePath},
		{"somebody's stored response", "GET", "/openai/v1/responses/resp_1", "", 404, RulePath},
		{"an upload to Gemini", "POST", "/gemini/upload/v1beta/files", "{}", 404, RulePath},
		{"a batch of Gemini", "POST", "/gemini/v1beta/models/x:batchGenerateContent", geminiBody, 405, RulePath},
		{"a stored cache", "POST", "/gemini/v1beta/cachedContents", "{}", 404, RulePath},
		{"a tuned model's verb", "POST", "/gemini/v1beta/tunedModels/x:generateContent", geminiBody, 404, RulePath},
		{"a verb after a verb", "POST", "/gemini/v1beta/models/x:generateContent:generateContent", geminiBody, 405, RulePath},
		{"a path in a model's name", "POST", "/gemini/v1beta/models/a/b:generateContent", geminiBody, 404, RulePath},
		{"another case", "POST", "/anthropic/v1/Messages", messagesBody, 404, RulePath},
		{"another provider's path", "POST", "/openai/v1/messages", messagesBody, 404, RulePath},
		{"a slash at the end", "POST", "/anthropic/v1/messages/", messagesBody, 404, RuleSyntax},
		{"two slashes", "POST", "/anthropic//v1/messages", messagesBody, 404, RuleSyntax},
		{"two slashes at the front", "POST", "//anthropic/v1/messages", messagesBody, 404, RuleSyntax},
		{"dots", "POST", "/anthropic/v1/messages/../files", messagesBody, 404, RuleSyntax},
		{"dots in a model's place", "GET", "/openai/v1/models/..", "", 404, RuleSyntax},
		{"one dot", "POST", "/anthropic/./v1/messages", messagesBody, 404, RuleSyntax},
		{"encoded dots", "POST", "/anthropic/v1/messages/%2e%2e/files", messagesBody, 404, RuleSyntax},
		{"an encoded slash", "GET", "/openai/v1/models/x%2f..%2ffiles", "", 404, RuleSyntax},
		{"an encoded colon", "POST", "/gemini/v1beta/models/x%3AgenerateContent", geminiBody, 404, RuleSyntax},
		{"a parameter of a segment", "POST", "/anthropic/v1/messages;x=1", messagesBody, 404, RuleSyntax},
		{"a backslash", "GET", "/openai/v1/models/a\\b", "", 404, RuleSyntax},
		{"no provider", "POST", "/v1/messages", messagesBody, 404, RuleSyntax},
		{"a provider in another case", "POST", "/Anthropic/v1/messages", messagesBody, 404, RuleSyntax},
		{"the provider alone", "GET", "/anthropic", "", 404, RuleSyntax},
		{"a long path", "GET", "/openai/v1/models/" + strings.Repeat("a", 600), "", 404, RuleSyntax},
		{"a long name", "GET", "/openai/v1/models/" + strings.Repeat("a", 300), "", 404, RulePath},
		{"a key of one's own in the query", "GET", "/gemini/v1beta/models?key=AIzaOwn", "", 401, RuleKey},
		{"the same parameter twice", "GET", "/gemini/v1beta/models?key={key}&key=AIzaOwn", "", 404, RuleSyntax},
		{"an unlisted parameter", "GET", "/gemini/v1beta/models?upload_protocol=raw", "", 400, RuleQuery},
		{"a field mask", "POST", geminiPath + "?$alt=sse", geminiBody, 404, RuleSyntax},
		{"a line end in a parameter", "GET", "/openai/v1/models?after=a%0d%0ab", "", 404, RuleSyntax},
		{"an ampersand in a parameter", "GET", "/openai/v1/models?after=a%26key", "", 404, RuleSyntax},
		{"a body where none belongs", "GET", "/openai/v1/models", "x", 400, RuleBody},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(f.up.requests())
			path := strings.ReplaceAll(c.path, "{key}", f.Placeholder("run"))
			status, text, header := f.do(t, c.method, path, c.body, nil)
			if status != c.status || header.Get("X-Cordon-Refused") != c.rule {
				t.Errorf("status %d %s, want %d %s\n%s", status, header.Get("X-Cordon-Refused"), c.status, c.rule, text)
			}
			if sent := len(f.up.requests()) - before; (sent == 1) != (c.status == 200) {
				t.Errorf("%d requests reached the provider", sent)
			}
			for _, r := range f.up.requests()[before:] {
				if strings.Contains(r.URI, "key") {
					t.Errorf("the provider saw %q", r.URI)
				}
			}
		})
	}
}

func TestRequestLines(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	head := "Host: x\r\nX-Api-Key: " + f.Placeholder("run") + "\r\nConnection: close\r\n\r\n"
	for _, c := range []struct{ name, line, want string }{
		{"a plain request", "GET /openai/v1/models HTTP/1.1\r\n", "200"},
		{"an absolute URI", "GET http://api.evil.test/openai/v1/models HTTP/1.1\r\n", "404"},
		{"a CONNECT", "CONNECT api.evil.test:443 HTTP/1.1\r\n", "404"},
		{"an asterisk", "OPTIONS * HTTP/1.1\r\n", "404"},
		{"a method that nobody knows", "BREW /openai/v1/models HTTP/1.1\r\n", "405"},
		{"TRACE", "TRACE /openai/v1/models HTTP/1.1\r\n", "405"},
		{"HTTP/2 by prior knowledge", "PRI * HTTP/2.0\r\n", "404"},
		{"TLS bytes", "\x16\x03\x01\x02\x00\x01\r\n", "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(f.up.requests())
			if line := f.raw(t, c.line+head); !strings.Contains(line, " "+c.want) {
				t.Errorf("answered %q, want %s", line, c.want)
			}
			if sent := len(f.up.requests()) - before; (sent == 1) != (c.want == "200") {
				t.Errorf("%d requests reached the provider", sent)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	const a, chat, resp = "/anthropic/v1/messages", "/openai/v1/chat/completions", "/openai/v1/responses"
	msg := func(fields string) string {
		return `{"model":"claude-sonnet-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]` + fields + `}`
	}
	parts := func(list string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[` + list + `]}]}`
	}
	input := func(list string) string { return `{"model":"gpt-5","input":[` + list + `]}` }
	gem := func(list, more string) string {
		return `{"contents":[{"role":"user","parts":[` + list + `]}]` + more + `}`
	}
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	for _, c := range []struct {
		name, path, body string
		status           int
		rule             string
	}{
		{"a tool of one's own", a, msg(`,"tools":[{"name":"web_search","input_schema":{"type":"object","properties":{"url":{"type":"string"},"mcp_servers":{"type":"array"}}}}]`), 200, ""},
		{"tools that the client runs", a, msg(`,"tools":[{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"memory_20250818","name":"memory"}]`), 200, ""},
		{"words about a fetch", a, parts(`{"type":"text","text":"{\"type\":\"url\",\"url\":\"https://evil.test\"}"}`), 200, ""},
		{"a tool's arguments that look like a source", a, `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"n","input":{"source":{"type":"url","url":"https://evil.test"}}}]}]}`, 200, ""},
		{"a picture in the body", a, parts(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`), 200, ""},
		{"a search of the web", a, msg(`,"tools":[{"type":"web_search_20250305","name":"web_search"}]`), 403, RuleFeature},
		{"a later search of the web", a, msg(`,"tools":[{"type":"web_search_20991231","name":"web_search"}]`), 403, RuleFeature},
		{"a fetch", a, msg(`,"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]`), 403, RuleFeature},
		{"code at the provider", a, msg(`,"tools":[{"type":"code_execution_20250825","name":"c"}]`), 403, RuleFeature},
		{"a tool that nobody knows", a, msg(`,"tools":[{"type":"teleport_20270101","name":"t"}]`), 403, RuleField},
		{"a tool whose type is no name", a, msg(`,"tools":[{"type":["web_search_20250305"],"name":"t"}]`), 400, RuleBody},
		{"tools that are no list", a, msg(`,"tools":{"type":"web_search_20250305"}`), 400, RuleBody},
		{"MCP servers", a, msg(`,"mcp_servers":[{"type":"url","url":"https://evil.test","name":"x"}]`), 403, RuleFeature},
		{"a tool that is added by its name", a, parts(`{"type":"tool_addition","tool":{"type":"tool_reference","name":"x"}}`), 200, ""},
		{"a search that is added on the way", a, parts(`{"type":"tool_addition","tool":{"type":"web_search_20250305","name":"x"}}`), 403, RuleFeature},
		{"servers that are added on the way", a, parts(`{"type":"tool_addition","tool":{"type":"mcp_toolset_reference","mcp_server_name":"x"}}`), 403, RuleField},
		{"a list of tools that is added on the way", a, parts(`{"type":"tool_addition","tool":[{"type":"web_search_20250305"}]}`), 400, RuleBody},
		{"a container", a, msg(`,"container":{"skills":[]}`), 403, RuleFeature},
		{"a container that is null", a, msg(`,"container":null`), 200, ""},
		{"a field that nobody knows", a, msg(`,"webhook_url":"https://evil.test"`), 403, RuleField},
		{"a picture by URL", a, parts(`{"type":"image","source":{"type":"url","url":"https://evil.test/?d=secret"}}`), 403, RuleFeature},
		{"a file of the account", a, parts(`{"type":"document","source":{"type":"file","file_id":"file_1"}}`), 403, RuleFeature},
		{"a picture by URL in a tool's result", a, parts(`{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{"type":"url","url":"https://evil.test"}}]}`), 403, RuleFeature},
		{"a picture by URL in a document", a, parts(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"https://evil.test"}}]}}`), 403, RuleFeature},
		{"a picture by URL in the instructions", a, msg(`,"system":[{"type":"image","source":{"type":"url","url":"https://evil.test"}}]`), 403, RuleFeature},
		{"a source that is no object", a, parts(`{"type":"image","source":"https://evil.test"}`), 400, RuleBody},
		{"a part that nobody knows", a, parts(`{"type":"hologram"}`), 403, RuleField},
		{"content that is an object", a, `{"model":"m","messages":[{"role":"user","content":{"type":"image"}}]}`, 400, RuleBody},
		{"the same field twice", a, msg(`,"tools":[],"tools":[{"type":"web_fetch_20250910"}]`), 400, RuleBody},
		{"the same field in another case", a, msg(`,"Tools":[{"type":"web_fetch_20250910"}]`), 403, RuleField},
		{"data after the body", a, messagesBody + `{"x":1}`, 400, RuleBody},
		{"no JSON", a, `model=claude`, 400, RuleBody},
		{"a picture by URL in a found text", a, parts(`{"type":"search_result","source":"s","title":"t","content":[{"type":"image","source":{"type":"url","url":"https://evil.test"}}]}`), 403, RuleFeature},
		{"a found text", a, parts(`{"type":"search_result","source":"https://x.test","title":"t","content":[{"type":"text","text":"x"}]}`), 200, ""},
		{"no MCP servers", a, msg(`,"mcp_servers":[]`), 200, ""},
		{"betas in the body", a, msg(`,"betas":["interleaved-thinking-2025-05-14","context-1m-2025-08-07"]`), 200, ""},
		{"a beta of MCP in the body", a, msg(`,"betas":["mcp-client-2025-11-20"]`), 403, RuleFeature},
		{"a beta in the body that nobody knows", a, msg(`,"betas":["teleport-2027-01-01"]`), 403, RuleField},
		{"a beta in the body that is no name", a, msg(`,"betas":[["files-api-2025-04-14"]]`), 400, RuleBody},
		{"betas in the body that are no list", a, msg(`,"betas":"files-api-2025-04-14"`), 400, RuleBody},
		{"a list", a, `[` + messagesBody + `]`, 400, RuleBody},
		{"no model", a, `{"messages":[]}`, 400, RuleBody},
		{"a model that is a path", a, `{"model":"../x?y","messages":[]}`, 400, RuleBody},
		{"a stream that is a text", a, msg(`,"stream":"true"`), 400, RuleBody},
		{"a length that is none", a, `{"model":"m","max_tokens":-1,"messages":[]}`, 400, RuleBody},
		{"counting with a search", a + "/count_tokens", msg(`,"tools":[{"type":"web_fetch_20250910","name":"w"}]`), 403, RuleFeature},
		{"nesting without end", a, strings.Repeat("[", 100000), 400, RuleBody},

		{"a chat with tools", chat, `{"model":"gpt-5","messages":[],"tools":[{"type":"function","function":{"name":"web_search"}}]}`, 200, ""},
		{"a chat with a data URL", chat, parts(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`), 200, ""},
		{"a chat with a URL", chat, parts(`{"type":"image_url","image_url":{"url":"https://evil.test/x.png"}}`), 403, RuleFeature},
		{"a chat with a URL as a text", chat, parts(`{"type":"image_url","image_url":"https://evil.test/x.png"}`), 403, RuleFeature},
		{"a chat with a URL of another case", chat, parts(`{"type":"image_url","image_url":{"url":"DATA:x"}}`), 403, RuleFeature},
		{"a URL in a part that is a text", chat, parts(`{"type":"text","text":"x","image_url":{"url":"https://evil.test"}}`), 403, RuleFeature},
		{"a film's URL in a part that is a text", chat, parts(`{"type":"text","text":"x","video_url":{"url":"https://evil.test"}}`), 403, RuleFeature},
		{"a URL under two objects", chat, parts(`{"type":"image_url","image_url":{"file":{"url":"https://evil.test"}}}`), 403, RuleFeature},
		{"a URL in a list", chat, parts(`{"type":"image_url","image_url":[{"url":"https://evil.test"}]}`), 400, RuleBody},
		{"a chat with a file of the account", chat, parts(`{"type":"file","file":{"file_id":"file-1"}}`), 403, RuleFeature},
		{"a chat that searches", chat, `{"model":"gpt-5","messages":[],"web_search_options":{}}`, 403, RuleFeature},
		{"a model that searches", chat, `{"model":"gpt-4o-search-preview","messages":[]}`, 403, RuleFeature},
		{"a URL under a name in another case", chat, parts(`{"type":"image_url","Image_URL":{"url":"https://evil.test"}}`), 400, RuleBody},
		{"a URL whose own name is in another case", chat, parts(`{"type":"image_url","image_url":{"URL":"https://evil.test"}}`), 400, RuleBody},
		{"parts under a name in another case", chat, `{"model":"m","messages":[{"role":"user","Content":[{"type":"image_url","image_url":{"url":"https://evil.test"}}]}]}`, 400, RuleBody},
		{"a tool's type in another case", chat, `{"model":"m","messages":[],"tools":[{"Type":"web_search"}]}`, 400, RuleBody},
		{"a source in another case", a, parts(`{"type":"image","source":{"Type":"url","type":"base64","url":"https://evil.test"}}`), 400, RuleBody},
		{"a tool's arguments in any case", a, `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"n","input":{"URL":"https://x.test","Content":"y"}}]}]}`, 200, ""},
		{"a function's schema in any case", chat, `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"URL":{"type":"string"}}}}}]}`, 200, ""},
		{"a router's plugin", chat, `{"model":"gpt-5","messages":[],"plugins":[{"id":"web"}]}`, 403, RuleField},
		{"a router's search", chat, `{"model":"openai/gpt-5:online","messages":[]}`, 403, RuleFeature},

		{"a response with a tool's output", resp, input(`{"type":"function_call_output","call_id":"1","output":"see https://evil.test"}`), 200, ""},
		{"a response of before", resp, `{"model":"gpt-5","input":"x","previous_response_id":"resp_1","background":false}`, 200, ""},
		{"a shell that the client runs", resp, `{"model":"gpt-5","input":"x","tools":[{"type":"shell","environment":{"type":"local"}},{"type":"local_shell"},{"type":"apply_patch"}]}`, 200, ""},
		{"a shell at the provider", resp, `{"model":"gpt-5","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`, 403, RuleFeature},
		{"a shell anywhere", resp, `{"model":"gpt-5","input":"x","tools":[{"type":"shell"}]}`, 403, RuleFeature},
		{"a search of the web by a response", resp, `{"model":"gpt-5","input":"x","tools":[{"type":"web_search_preview"}]}`, 403, RuleFeature},
		{"a search hidden in a namespace", resp, `{"model":"gpt-5","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`, 403, RuleFeature},
		{"a search hidden in the input", resp, input(`{"type":"additional_tools","tools":[{"type":"mcp","server_url":"https://evil.test"}]}`), 403, RuleFeature},
		{"a search of files", resp, `{"model":"gpt-5","input":"x","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}`, 403, RuleFeature},
		{"a connector", resp, `{"model":"gpt-5","input":"x","tools":[{"type":"mcp","connector_id":"connector_gmail"}]}`, 403, RuleFeature},
		{"an answer that nobody waits for", resp, `{"model":"gpt-5","input":"x","background":true}`, 403, RuleFeature},
		{"a stored prompt", resp, `{"model":"gpt-5","input":"x","prompt":{"id":"pmpt_1"}}`, 403, RuleFeature},
		{"a stored conversation", resp, `{"model":"gpt-5","input":"x","conversation":"conv_1"}`, 403, RuleFeature},
		{"a picture by URL in the input", resp, input(`{"role":"user","content":[{"type":"input_image","image_url":"https://evil.test"}]}`), 403, RuleFeature},
		{"a file by URL in the input", resp, input(`{"role":"user","content":[{"type":"input_file","file_url":"https://evil.test"}]}`), 403, RuleFeature},
		{"a picture by URL in a tool's output", resp, input(`{"type":"function_call_output","call_id":"1","output":[{"type":"input_image","image_url":"https://evil.test"}]}`), 403, RuleFeature},
		{"a screenshot by URL", resp, input(`{"type":"computer_call_output","call_id":"1","output":{"type":"computer_screenshot","image_url":"https://evil.test"}}`), 403, RuleFeature},
		{"a screenshot of the account", resp, input(`{"type":"computer_call_output","call_id":"1","output":{"type":"computer_screenshot","file_id":"file-1"}}`), 403, RuleFeature},
		{"a picture by URL in a shell's output", resp, input(`{"type":"shell_call_output","call_id":"1","output":[{"type":"input_image","image_url":"https://evil.test"}]}`), 403, RuleFeature},
		{"a shell's output", resp, input(`{"type":"shell_call_output","call_id":"1","output":[{"stdout":"https://x.test","stderr":"","outcome":{"type":"exit","exit_code":0}}]}`), 200, ""},
		{"a shell's output as a text", resp, input(`{"type":"shell_call_output","call_id":"1","output":"done"}`), 200, ""},
		{"a picture by URL in a thought", resp, input(`{"type":"reasoning","summary":[],"content":[{"type":"input_image","image_url":"https://evil.test"}]}`), 403, RuleFeature},
		{"a thought", resp, input(`{"type":"reasoning","summary":[{"type":"summary_text","text":"x"}],"content":[{"type":"reasoning_text","text":"x"}],"encrypted_content":"AA"}`), 200, ""},
		{"a sealed thought", resp, input(`{"type":"reasoning","summary":[],"content":null,"encrypted_content":"AA"}`), 200, ""},
		{"an item that nobody knows", resp, input(`{"type":"hologram"}`), 403, RuleField},

		{"Gemini with functions", geminiPath, gem(`{"text":"x"}`, `,"tools":[{"functionDeclarations":[{"name":"googleSearch"}]}],"generationConfig":{"maxOutputTokens":"9"}`), 200, ""},
		{"Gemini with bytes", geminiPath, gem(`{"inline_data":{"mime_type":"image/png","data":"AAAA"}}`, ``), 200, ""},
		{"Gemini that searches", geminiPath, gem(`{"text":"x"}`, `,"tools":[{"googleSearch":{}}]`), 403, RuleFeature},
		{"Gemini that searches, spelled otherwise", geminiPath, gem(`{"text":"x"}`, `,"tools":[{"google_search":{}}]`), 403, RuleFeature},
		{"Gemini that searches beside a function", geminiPath, gem(`{"text":"x"}`, `,"tools":[{"functionDeclarations":[],"url_context":{}}]`), 403, RuleFeature},
		{"Gemini with one tool for a list", geminiPath, gem(`{"text":"x"}`, `,"tools":{"code_execution":{}}`), 403, RuleFeature},
		{"Gemini with a file by URL", geminiPath, gem(`{"file_data":{"file_uri":"https://evil.test"}}`, ``), 403, RuleFeature},
		{"Gemini with a file by URL in the instructions", geminiPath, `{"contents":[],"system_instruction":{"parts":[{"fileData":{"fileUri":"https://evil.test"}}]}}`, 403, RuleFeature},
		{"Gemini with a file by URL in a function's answer", geminiPath, gem(`{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"https://evil.test"}}]}}`, ``), 403, RuleFeature},
		{"Gemini with both spellings of a field", geminiPath, gem(`{"text":"x"}`, `,"systemInstruction":{"parts":[]},"system_instruction":{"parts":[{"fileData":{"fileUri":"https://evil.test"}}]}`), 403, RuleFeature},
		{"Gemini that answers by text", geminiPath, gem(`{"text":"x"}`, `,"generationConfig":{"responseModalities":["TEXT"]}`), 200, ""},
		{"Gemini that answers by pictures", geminiPath, gem(`{"text":"x"}`, `,"generation_config":{"response_modalities":["TEXT","IMAGE"]}`), 403, RuleFeature},
		{"a model of Gemini that answers by pictures", "/gemini/v1beta/models/gemini-3-pro-image:generateContent", geminiBody, 403, RuleFeature},
		{"a chat that answers by sound", chat, `{"model":"gpt-5","messages":[],"modalities":["text","audio"]}`, 403, RuleFeature},
		{"Gemini with a cache", geminiPath, gem(`{"text":"x"}`, `,"cachedContent":"cachedContents/1"`), 403, RuleFeature},
		{"Gemini that counts a search", "/gemini/v1beta/models/g:countTokens", `{"generateContentRequest":{"contents":[],"tools":[{"googleSearch":{}}]}}`, 403, RuleFeature},
		{"Gemini with requests in requests", "/gemini/v1beta/models/g:batchEmbedContents", `{"requests":[{"requests":[{"content":{}}]}]}`, 400, RuleBody},
		{"vectors", "/gemini/v1beta/models/g:batchEmbedContents", `{"requests":[{"model":"models/g","content":{"parts":[{"text":"x"}]}}]}`, 200, ""},
		{"vectors of OpenAI", "/openai/v1/embeddings", `{"model":"text-embedding-3-small","input":["a","b"]}`, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(f.up.requests())
			status, text, header := f.do(t, "POST", c.path, c.body, nil)
			if status != c.status || header.Get("X-Cordon-Refused") != c.rule {
				t.Errorf("status %d %s, want %d %s\n%s", status, header.Get("X-Cordon-Refused"), c.status, c.rule, text)
			}
			if sent := len(f.up.requests()) - before; (sent == 1) != (c.status == 200) {
				t.Errorf("%d requests reached the provider", sent)
			}
			if c.status != 200 && !json.Valid([]byte(text)) {
				t.Errorf("the refusal is no JSON: %s", text)
			}
		})
	}
}

func TestFeaturesLetThrough(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), func(c *Config) { c.Features = []Feature{WebFetch, RemoteURLs, Unknown} })
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"the feature that was named", `{"model":"m","messages":[],"tools":[{"type":"web_fetch_20250910","name":"w"}]}`, 200},
		{"a URL", `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x.test"}}]}]}`, 200},
		{"what nobody knows", `{"model":"m","messages":[],"sparkle":1}`, 200},
		{"another feature", `{"model":"m","messages":[],"tools":[{"type":"web_search_20250305","name":"w"}]}`, 403},
	} {
		if status, text, _ := f.do(t, "POST", "/anthropic/v1/messages", c.body, func(r *http.Request) {
			r.Header.Set("Anthropic-Beta", "web-fetch-2025-09-10, files-api-2025-04-14")
		}); status != c.status {
			t.Errorf("%s: status %d, want %d\n%s", c.name, status, c.status, text)
		}
	}
	if got := f.up.requests()[0].Header.Get("Anthropic-Beta"); got != "web-fetch-2025-09-10" {
		t.Errorf("betas that went out: %q", got)
	}
}

func TestKeys(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	other := f.Placeholder("other")
	for _, c := range []struct {
		name   string
		edit   func(http.Header)
		status int
	}{
		{"the placeholder", func(http.Header) {}, 200},
		{"the placeholder as a bearer", func(h http.Header) {
			h.Set("Authorization", "Bearer "+h.Get("X-Api-Key"))
			h.Del("X-Api-Key")
		}, 200},
		{"the placeholder and a key of one's own", func(h http.Header) { h.Set("Authorization", "Bearer sk-own") }, 200},
		{"no key", func(h http.Header) { h.Del("X-Api-Key") }, 401},
		{"a key of one's own", func(h http.Header) { h.Set("X-Api-Key", "sk-own") }, 401},
		{"the real key", func(h http.Header) { h.Set("X-Api-Key", realKey) }, 401},
		{"another run's placeholder", func(h http.Header) { h.Set("X-Api-Key", other) }, 401},
		{"a web page's request", func(h http.Header) {
			h.Del("X-Api-Key")
			h.Set("Origin", "https://evil.test")
			h.Set("Content-Type", "text/plain")
		}, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(f.up.requests())
			status, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, func(r *http.Request) { c.edit(r.Header) })
			if status != c.status {
				t.Errorf("status %d, want %d\n%s", status, c.status, text)
			}
			for _, r := range f.up.requests()[before:] {
				if got := r.Header.Get("X-Api-Key"); got != realKey || r.Header.Get("Authorization") != "" {
					t.Errorf("the provider saw key %q, authorization %q", got, r.Header.Get("Authorization"))
				}
			}
		})
	}
	open := start(t, jsonAnswer(anthropicAnswer), func(c *Config) { c.UnsafeAnyKey = true })
	if status, text, _ := open.do(t, "POST", "/anthropic/v1/messages", messagesBody, func(r *http.Request) { r.Header.Set("X-Api-Key", "sk-own") }); status != 200 {
		t.Errorf("a listener of the run's own: status %d\n%s", status, text)
	}
	if got := open.up.requests()[0].Header.Get("X-Api-Key"); got != realKey {
		t.Errorf("the provider saw key %q", got)
	}
}

func TestHeaders(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Request-Id", "req_1")
		h.Set("Anthropic-Ratelimit-Tokens-Remaining", "5")
		h.Set("Anthropic-Organization-Id", "org-secret")
		h.Set("Set-Cookie", "session=secret")
		h.Set("X-Request-Id", "echo "+realKey)
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Alt-Svc", `h3="evil.test:443"`)
		io.WriteString(w, anthropicAnswer)
	}, nil)
	status, _, answer := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, func(r *http.Request) {
		h := r.Header
		r.Host = "evil.test"
		h.Set("Anthropic-Version", "2023-06-01")
		h.Set("X-Stainless-Lang", "js")
		h.Set("User-Agent", "agent/1")
		h.Set("Cookie", "a=b")
		h.Set("X-Forwarded-For", "1.2.3.4")
		h.Set("X-Goog-User-Project", "theirs")
		h.Set("Openai-Organization", "theirs")
		h.Set("X-Http-Method-Override", "DELETE")
		h.Set("Accept-Encoding", "gzip")
		h.Set("Proxy-Authorization", "Basic x")
		h["Anthropic-Beta"] = []string{"files-api-2025-04-14", "interleaved-thinking-2025-05-14,interleaved-thinking-2025-05-14"}
	})
	if status != 200 {
		t.Fatal(status)
	}
	want := http.Header{
		"Accept-Encoding": {"identity"}, "Anthropic-Beta": {"interleaved-thinking-2025-05-14"}, "Anthropic-Version": {"2023-06-01"},
		"Content-Length": {fmt.Sprint(len(messagesBody))}, "Content-Type": {"application/json"},
		"User-Agent": {"agent/1"}, "X-Api-Key": {realKey}, "X-Stainless-Lang": {"js"},
	}
	if diff := cmp.Diff(want, f.up.requests()[0].Header); diff != "" {
		t.Errorf("headers that went out (-want +got)\n%s", diff)
	}
	var names []string
	for name := range answer {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"Anthropic-Ratelimit-Tokens-Remaining", "Content-Type", "Date", "Request-Id", "X-Content-Type-Options"}, names); diff != "" {
		t.Errorf("headers that came back (-want +got)\n%s", diff)
	}
}

func TestTheKeyStaysOutside(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"an answer that repeats it", jsonAnswer(`{"echo":"` + realKey + `"}`)},
		{"an answer that repeats it in pieces", func(w http.ResponseWriter, _ *http.Request) {
			for _, b := range []byte(`x sk-real-01 ` + realKey + realKey[:9] + realKey + ` sk-real`) {
				w.Write([]byte{b})
				w.(http.Flusher).Flush()
			}
		}},
		{"an event that repeats it", stream(nil, `data: {"echo":"`+realKey+`"}`, "data: "+realKey[:10]+"\ndata: x")},
		{"a refusal of it", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "bad key "+realKey, http.StatusUnauthorized)
		}},
		{"an error that repeats it", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad key "+realKey, http.StatusBadRequest) }},
		{"a redirect that repeats it", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test/?"+realKey, http.StatusTemporaryRedirect)
		}},
		{"a connection that breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t, c.answer, nil)
			_, text, header := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
			if strings.Contains(text, realKey) || strings.Contains(fmt.Sprint(header), realKey) {
				t.Errorf("the key came inside: %v %s", header, text)
			}
			if len(f.up.requests()) == 0 {
				t.Error("the provider was not asked")
			}
			f.books.mu.Lock()
			defer f.books.mu.Unlock()
			if logs := f.books.logs.String(); strings.Contains(logs, realKey) {
				t.Errorf("the key was logged: %s", logs)
			}
		})
	}
	key, err := NewSecret(realKey)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"k": key, "p": &key})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(key), fmt.Sprintf("%v %+v %#v %q %x %d %s", key, key, &key, key, key, key, []Secret{key}), string(b), fmt.Sprintf("%+v", Upstream{})} {
		if strings.Contains(s, "0123456789") || strings.Contains(s, fmt.Sprintf("%x", realKey)) {
			t.Errorf("the key was printed: %s", s)
		}
	}
}

func TestKeyThatCannotBeHad(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), func(c *Config) {
		c.Upstreams[0].Key = func(context.Context) (Secret, error) { return Secret{}, errors.New("keychain locked") }
	})
	status, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
	if status != 502 || strings.Contains(text, "keychain") || len(f.up.requests()) != 0 {
		t.Errorf("status %d %s", status, text)
	}
	if !strings.Contains(f.books.logs.String(), "keychain locked") {
		t.Error("the operator was not told")
	}
}

func TestRedirectsAndEncodings(t *testing.T) {
	zipped := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
		return b.String()
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		status int
		text   string
		charge bool
	}{
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test/", http.StatusFound)
		}, 502, "not followed", false},
		{"an answer in gzip", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, zipped(anthropicAnswer))
		}, 200, "hello", true},
		{"an answer in an encoding that nobody asked for", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "xx")
		}, 502, "encoding", true},
		{"an answer that claims to be gzip", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "plain")
		}, 502, "encoding", true},
		{"the provider's own error", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(529)
			io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		}, 529, "overloaded_error", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t, c.answer, nil)
			status, text, header := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
			if status != c.status || !strings.Contains(text, c.text) || header.Get("Location") != "" {
				t.Errorf("status %d %v %s", status, header, text)
			}
			if n := len(f.books.charges); (n == 1) != c.charge {
				t.Errorf("%d charges", n)
			}
		})
	}
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	if status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", zipped(messagesBody), func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }); status != 415 {
		t.Errorf("a body in gzip: status %d", status)
	}
	if status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }); status != 415 {
		t.Errorf("a body that is no JSON by its type: status %d", status)
	}
}

func TestLargeBodies(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), func(c *Config) { c.Limits.BodyBytes = 1 << 20 })
	body := func(n int) string {
		return `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("a", n) + `"}]}`
	}
	if status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", body(1<<19), nil); status != 200 {
		t.Errorf("a body within the limit: status %d", status)
	}
	// Without a length, so that it is counted as it comes.
	status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", "", func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body(2<<20))), -1
	})
	if status != 413 || len(f.up.requests()) != 1 {
		t.Errorf("a body past the limit: status %d, %d requests", status, len(f.up.requests()))
	}
}

func TestEnv(t *testing.T) {
	b := newBooks()
	p, err := New(Config{Upstreams: []Upstream{{Provider: OpenAI}}, Dial: new(net.Dialer).DialContext, Allowed: b.allowed, Charge: b.charge, Record: b.record})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := map[string]string{
		"OPENAI_BASE_URL": "http://10.0.0.1:8080/openai/v1", "OPENAI_API_BASE": "http://10.0.0.1:8080/openai/v1",
		"OPENAI_API_KEY": p.Placeholder("r"), "CODEX_API_KEY": p.Placeholder("r"), "NO_PROXY": "10.0.0.1", "no_proxy": "10.0.0.1",
	}
	if diff := cmp.Diff(want, envMap(p.Env("10.0.0.1:8080", "r"))); diff != "" {
		t.Errorf("only what has an upstream (-want +got)\n%s", diff)
	}
	if p.Placeholder("r") == p.Placeholder("s") {
		t.Error("two runs have one placeholder")
	}
}

func TestAFloodOfRefusals(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), func(c *Config) { c.Limits.AuditWindow = time.Hour })
	const n = 300
	for i := range n {
		f.do(t, "GET", fmt.Sprintf("/openai/v1/secret%d", i), "", nil)
	}
	if err := f.Proxy.Close(); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, r := range f.books.refusals {
		total += r.Count
	}
	if total != n || len(f.books.refusals) > rowsPerWindow+2 {
		t.Errorf("%d refusals in %d rows, want %d in at most %d", total, len(f.books.refusals), n, rowsPerWindow+2)
	}
}

func TestModes(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		mode                     cordon.Mode
		status                   int
		rules                    []string
	}{
		{"shadow lets a search pass and says so", "POST", "/anthropic/v1/messages", `{"model":"m","messages":[],"tools":[{"type":"web_search_20250305"}]}`, cordon.Shadow, 200, []string{RuleFeature}},
		{"shadow lets an unlisted path pass", "POST", "/anthropic/v1/files", "anything", cordon.Shadow, 200, []string{RulePath}},
		{"shadow refuses what cannot be read", "POST", "/anthropic/v1/messages", "{", cordon.Shadow, 400, []string{RuleBody}},
		{"shadow refuses a confused path", "GET", "/anthropic/v1/%2e%2e/x", "", cordon.Shadow, 404, []string{RuleSyntax}},
		{"shadow lets a call over the cap pass", "POST", "/anthropic/v1/messages", messagesBody, cordon.Shadow, 200, []string{RuleCap}},
		{"off says nothing", "POST", "/anthropic/v1/files", "anything", cordon.Off, 200, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t, jsonAnswer(anthropicAnswer), func(cfg *Config) { cfg.Mode = c.mode })
			if slices.Contains(c.rules, RuleCap) {
				f.books.set(func(b *books) { b.cap, b.spent = 1, 2 })
			}
			status, text, _ := f.do(t, c.method, c.path, c.body, nil)
			if status != c.status {
				t.Errorf("status %d, want %d\n%s", status, c.status, text)
			}
			if diff := cmp.Diff(c.rules, f.books.rules()); diff != "" {
				t.Errorf("rules (-want +got)\n%s", diff)
			}
			for _, r := range f.books.refusals {
				if r.Enforced != (c.status != 200) {
					t.Errorf("row %+v", r) // G6
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	ok := func(c *Config) {}
	base := func() Config {
		b := newBooks()
		return Config{Upstreams: []Upstream{{Provider: Anthropic}}, Dial: new(net.Dialer).DialContext, Allowed: b.allowed, Charge: b.charge, Record: b.record}
	}
	for _, c := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"a plain configuration", ok, ""},
		{"no upstream", func(c *Config) { c.Upstreams = nil }, "no upstream"},
		{"no dialer", func(c *Config) { c.Dial = nil }, "no Dial"},
		{"nobody to charge", func(c *Config) { c.Charge = nil }, "Charge"},
		{"nobody to ask", func(c *Config) { c.Allowed = nil }, "Allowed"},
		{"nobody to tell", func(c *Config) { c.Record = nil }, "Record"},
		{"an unknown provider", func(c *Config) { c.Upstreams[0].Provider = "other" }, "unknown provider"},
		{"plain HTTP", func(c *Config) { c.Upstreams[0].BaseURL = "http://localhost:11434" }, "want https"},
		{"plain HTTP by its word", func(c *Config) {
			c.Upstreams[0].BaseURL = "http://localhost:11434"
			c.Upstreams[0].UnsafePlainHTTP = true
		}, ""},
		{"a key in the URL", func(c *Config) { c.Upstreams[0].BaseURL = "https://u:" + realKey + "@x.test" }, "nothing else"},
		{"a key in a broken URL", func(c *Config) { c.Upstreams[0].BaseURL = "https://u:" + realKey + "@x.test:x" }, "no URL"},
		{"a query in the URL", func(c *Config) { c.Upstreams[0].BaseURL = "https://x.test?key=" + realKey }, "nothing else"},
		{"the same provider twice", func(c *Config) { c.Upstreams = append(c.Upstreams, c.Upstreams[0]) }, "two upstreams"},
		{"an unknown feature", func(c *Config) { c.Features = []Feature{"everything"} }, "unknown feature"},
		{"an unknown mode", func(c *Config) { c.Mode = 9 }, "unknown mode"},
		{"a negative limit", func(c *Config) { c.Limits.Calls = -1 }, "negative"},
		{"a negative time", func(c *Config) { c.Limits.IdleTime = -1 }, "negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := base()
			c.edit(&cfg)
			p, err := New(cfg)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), realKey) {
				t.Errorf("the error holds the key: %v", err)
			}
			if p != nil {
				p.Close()
			}
		})
	}
	for _, bad := range []string{"", "short", "with space in it", "line\r\nbreak-break", "ünïcödé-kéy"} {
		if _, err := NewSecret(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("key %q: %v", bad, err)
		}
	}
}
