package javascript

import (
	"strings"
	"testing"
)

// kilobyte is ordinary code of about 1 KB.
const kilobyteJS = `const fs = require("fs");
const path = require("path");

class Report {
  constructor(dir, options = {}) {
    this.dir = dir;
    this.options = { limit: 100, ...options };
    this.rows = [];
  }

  load() {
    for (const name of fs.readdirSync(this.dir)) {
      if (!name.endsWith(".csv")) continue;
      const text = fs.readFileSync(path.join(this.dir, name), "utf8");
      const [head, ...lines] = text.trim().split("\n").map((l) => l.split(","));
      for (const line of lines.slice(0, this.options.limit)) {
        this.rows.push(Object.fromEntries(head.map((h, i) => [h, line[i]])));
      }
    }
    return this;
  }

  total(key) {
    return this.rows.reduce((sum, row) => sum + Number(row[key] || 0), 0);
  }
}

const report = new Report(process.argv[2] || "data").load();
if (process.env.NODE_ENV !== "test") {
  console.log(` + "`total: ${report.total(\"amount\")} of ${report.rows.length}`" + `);
}
fs.writeFileSync("data/report.json", JSON.stringify(report.rows, null, 2));
`

func bench(b *testing.B, src string, ts bool) {
	env := testEnv()
	env.TypeScript = ts
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		Lower(b.Context(), src, env)
	}
}

func BenchmarkJavaScript1KB(b *testing.B) { bench(b, kilobyteJS, false) }

func BenchmarkTypeScript1KB(b *testing.B) {
	typed := strings.NewReplacer(`constructor(dir, options = {})`, `constructor(private dir: string, private options: { limit?: number } = {})`,
		`this.rows = [];`, `this.rows = [] as Record<string, string>[];`, `total(key)`, `total(key: string): number`).Replace(kilobyteJS)
	bench(b, typed, true)
}

// BenchmarkTypeScriptPlain1KB is TypeScript that is JavaScript as well.
func BenchmarkTypeScriptPlain1KB(b *testing.B) { bench(b, kilobyteJS, true) }

func BenchmarkJavaScript250KB(b *testing.B) {
	n := 250 << 10 / len(kilobyteJS)
	var s strings.Builder
	for range n {
		s.WriteString("(() => {\n" + kilobyteJS + "})();\n")
		if s.Len() > 240<<10 {
			break
		}
	}
	bench(b, s.String(), false)
}

func BenchmarkAttack(b *testing.B) {
	bench(b, `const d = (s) => Buffer.from(s, "base64").toString(); require(d("Y2hpbGRfcHJvY2Vzcw=="))[d("ZXhlY1N5bmM=")]("true")`, false)
}
