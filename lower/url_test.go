package lower

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sayReading writes what an address was read as: its hosts with their
// schemes, then what else it is.
func sayReading(r reading) string {
	var parts []string
	for _, a := range r.hosts {
		parts = append(parts, a.scheme+" "+a.host)
	}
	for what, is := range map[string]bool{"file": r.file, "none": r.none} {
		if is {
			parts = append(parts, what)
		}
	}
	for _, s := range []string{r.script, r.opaque, r.malformed, r.mail} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "; ")
}

func TestE2AddressesAreReadTheWayEveryReaderWould(t *testing.T) {
	for _, r := range []struct{ name, in, want string }{
		{"an ordinary address", "https://example.com/a?b=c#d", "https example.com"},
		{"with a port", "http://example.com:8080/", "http example.com:8080"},
		{"the scheme in capitals", "HTTPS://Example.COM", "https Example.COM"},
		{"an IPv6 address", "https://[::1]:8443/x", "https [::1]:8443"},
		{"a number for a host", "http://2130706433/", "http 2130706433"},
		{"an address in the query is not contacted", "https://a.example/?u=https://b.example/", "https a.example"},
		{"an @ in the path is none of the host", "https://a.example/@b.example", "https a.example"},
		{"userinfo", "https://a.example:443@b.example/", "https b.example"},
		{"several @", "https://u@a.example@b.example/", "https b.example; https a.example"},
		{"a backslash before an @", `https://b.example\@a.example/`, "https b.example; https a.example"},
		{"a backslash in the host", `https://a.example\.b.example/`, `https a.example; https a.example\.b.example`},
		{"backslashes for slashes", `https:\\b.example\x`, `https b.example; https b.example\x`},
		{"no slash at all", "https:b.example", "https b.example"},
		{"one slash", "http:/b.example/", "http b.example"},
		{"many slashes", "https:////b.example/", "https b.example"},
		{"a question mark before an @", "https://a.example?@b.example/", "https a.example; https b.example"},
		{"a hash before an @", "https://a.example#@b.example/", "https a.example; https b.example"},
		{"an encoded letter", "https://a%2eexample/", "https a%2eexample; https a.example"},
		{"an encoded slash", "https://a.example%2fb.example/", "https a.example%2fb.example; https a.example"},
		{"an encoded @", "https://a.example%40b.example/", "https a.example%40b.example; https b.example"},
		{"no scheme", "b.example/x", "https b.example"},
		{"no scheme and a port", "b.example:443/x", "https b.example:443"},
		{"no scheme and a user", "u@b.example/x", "https b.example"},
		{"only slashes before", "//b.example/x", "https b.example"},
		{"a slash and a backslash before", `/\b.example/x`, "https b.example"},
		{"a tab in the scheme", "ht\ttps://b.example", "https ht; https b.example"},
		{"a line end in the host", "https://a.example\n.b.example/", "https a.example; https a.example.b.example"},
		{"space around", "  https://b.example ", "https b.example"},
		{"space in the host", "https://a.example b.example/", "https a.example b.example; malformed: white space or control characters in a URL's host"},
		{"NUL", "https://a.example\x00.b.example/", "https a.example\x00.b.example; malformed: white space or control characters in a URL's host"},
		{"no host", "https://", "malformed: a URL without a host"},
		{"no host but a user", "https://u@/x", "malformed: a URL without a host"},
		{"git over ssh", "git+ssh://git@b.example/x", "ssh b.example"},
		{"scp's form", "git@b.example:x/y.git", "ssh b.example"},
		{"an address in an address", "view-source:https://b.example/", "https b.example"},
		{"an archive's member", "jar:https://b.example/a.jar!/x", "https b.example"},
		{"a blob's origin", "blob:https://b.example/1", "https b.example"},
		{"a file", "file:///srv/x", "file"},
		{"a file of this machine by name", "file://localhost/srv/x", "file"},
		{"a file of another machine", "file://b.example/x", "smb b.example; file"},
		{"a file of another machine by four slashes", "file:////b.example/x", "smb b.example; file"},
		{"a file with backslashes", `file:\\b.example\x`, "smb b.example; file"},
		{"a share", `\\b.example\x`, "smb b.example; file"},
		{"script", "javascript:alert(1)", "alert(1)"},
		{"script behind capitals and escapes", " JavaScript:alert%281%29", "alert(1)"},
		{"a page in the address", "data:text/html,<script>x</script>", "<script>x</script>"},
		{"a page in the address in base64", "data:text/html;base64,PGI+eDwvYj4=", "<b>x</b>"},
		{"VBScript", "vbscript:x", "VBScript in an address"},
		{"a page of the browser", "chrome://settings", "a page of the browser itself"},
		{"an empty page", "about:blank", "none"},
		{"mail", "mailto:a@b.example?subject=x", "a@b.example"},
		{"an unknown scheme with a host", "foo://b.example/x", "foo b.example"},
		{"an unknown scheme without one", "foo:bar", "an address of scheme foo"},
		{"a variable for a host", "https://${HOST}/x", "https ${HOST}"},
	} {
		t.Run(r.name, func(t *testing.T) {
			if d := cmp.Diff(r.want, sayReading(readAddress(r.in))); d != "" {
				t.Errorf("%q (-want +got):\n%s", r.in, d)
			}
		})
	}
}

func TestStringsThatLookLikeAddresses(t *testing.T) {
	for s, want := range map[string]bool{
		"https://a.example": true, "HTTP:/a.example": true, "ws://x": true, "//a.example/x": true, "//srv/x": false,
		"git@a.example:x/y": true, "file:x": true, "foo://x": true, "a.example/x": false, "a.example:443": false,
		"note: see https": false, "12:30": false, "see https://a.example": false, "urn:x:y": false, "http": false,
		"ssh://x": true, "C:/x": false, "data:": false, "data: see below": false, "key:value": false, "\thttps://a.example": true,
		"h\tttps://a.example": true, "javascript:x": true, "git: push": false,
	} {
		if got := addressShape(s); got != want {
			t.Errorf("addressShape(%q) = %v (want %v)", s, got, want)
		}
	}
}

func TestStringsThatLookLikePaths(t *testing.T) {
	for s, want := range map[string]bool{
		"/srv": true, "~": true, "~/x": true, "~dev/x": true, "~5": false, "~5 items": false, "./x": true, "..": true, "../x": true,
		"a/../../b": true, "a/..b": false, "...": false, `..\x`: true, `C:\x`: true, "c:/x": true, `\\h\s`: true, "$HOME/x": true, "${X}/y": true,
		"$5/month": false, "a/b": false, "x": false, "": false, "file:x": true, "FILE:///x": true, "%2e%2e/x": true, "\uff0fsrv": true, " /srv": true,
		"//a.example/x": false, "//srv/x": true, "see ../x": false, "/srv\nmore": false, "100%": false, "~/.x y": true, "%APPDATA%\\x": true,
	} {
		if got := pathShape(s); got != want {
			t.Errorf("pathShape(%q) = %v (want %v)", s, got, want)
		}
	}
}

func FuzzReadAddress(f *testing.F) {
	for _, s := range []string{"https://a\\@b", "//x", "git@h:p", "jar:blob:http://x", "data:;base64,AA==", "file:////h/s", "http://a@b@c?d#e@f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := readAddress(s)
		for _, a := range r.hosts {
			if a.host == "" || a.scheme == "" {
				t.Fatalf("%q: empty host or scheme in %+v", s, r)
			}
			if strings.Contains(a.host, "/") {
				t.Fatalf("%q: host %q holds a path", s, a.host)
			}
		}
		if len(r.hosts) == 0 && !r.file && !r.none && r.script+r.opaque+r.malformed+r.mail == "" && len(s) > 64 && strings.HasPrefix(s, "http://a") {
			t.Fatalf("%q gives nothing", s)
		}
	})
}
