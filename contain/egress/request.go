package egress

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Bounds of one request head.
const (
	maxTarget = 8 << 10
	maxFields = 100
	maxMethod = 32
)

// request is one request head, read strictly. Nothing in it is ambiguous:
// the target and the Host field name the same host and port.
type request struct {
	method string
	// host is as the client wrote it, name its canonical form.
	host, name string
	port       uint16
	path       string // of plain HTTP: "/…", with the query
	minor      byte   // of HTTP/1.minor
	fields     []field
	// length of the body; chunked sets it to -1.
	length   int64
	chunked  bool
	expect   bool // 100-continue
	keepOpen bool
}

type field struct{ name, value string }

// plain reports whether the request is forwarded rather than tunnelled.
func (r *request) plain() bool { return r.method != http.MethodConnect }

// syntaxError is a request that is refused for its form, with the status
// that says so.
type syntaxError struct {
	status int
	why    string
	// host is the host that was asked for, where that much could be read.
	host string
}

func (e *syntaxError) Error() string { return e.why }

func malformed(format string, args ...any) *syntaxError {
	return &syntaxError{status: http.StatusBadRequest, why: fmt.Sprintf(format, args...)}
}

// headReader reads request heads from a connection, and hands out what
// follows them as a reader.
type headReader struct {
	src  io.Reader
	buf  []byte
	r, w int
}

// reset gives it a buffer, of which the first n bytes are read already.
func (h *headReader) reset(buf []byte, n int) { h.buf, h.r, h.w = buf, 0, n }

// buffered is what was read beyond the last head.
func (h *headReader) buffered() []byte { return h.buf[h.r:h.w] }

// Read reads what follows the last head. Small reads go by the buffer.
func (h *headReader) Read(p []byte) (int, error) {
	if h.r == h.w && len(p) < 512 {
		if err := h.fill(); err != nil {
			return 0, err
		}
	}
	if h.r < h.w {
		n := copy(p, h.buf[h.r:h.w])
		h.r += n
		return n, nil
	}
	return h.src.Read(p)
}

// fill reads once, after moving what is left to the front. It returns io.EOF
// at the end and errFull when the buffer is.
func (h *headReader) fill() error {
	if h.r > 0 {
		h.w = copy(h.buf, h.buf[h.r:h.w])
		h.r = 0
	}
	if h.w == len(h.buf) {
		return errFull
	}
	n, err := h.src.Read(h.buf[h.w:])
	h.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

var errFull = &syntaxError{status: http.StatusRequestHeaderFieldsTooLarge, why: "the request's head is too large"}

// head returns the next head up to and including its empty line, valid until
// the next call. What cannot become a head is refused as soon as that shows.
func (h *headReader) head() ([]byte, error) {
	scanned := 0
	for {
		data := h.buffered()
		if err := plausible(data); err != nil {
			return nil, err
		}
		from := max(0, scanned-3)
		if i := bytes.Index(data[from:], []byte("\r\n\r\n")); i >= 0 {
			end := from + i + 4
			h.r += end
			return data[:end], nil
		}
		// An empty line by bare LF ends a head for some: refuse, not wait.
		if bytes.Contains(data[from:], []byte("\n\n")) || bytes.Contains(data[from:], []byte("\n\r\n")) && !bytes.Contains(data[from:], []byte("\r\n\r\n")) {
			return nil, malformed("a line of the head does not end in CR LF")
		}
		scanned = len(data)
		switch err := h.fill(); {
		case err == nil:
		case err == errFull && bytes.IndexByte(data, '\n') < 0:
			return nil, &syntaxError{status: http.StatusRequestURITooLong, why: "the request line is too long"}
		default:
			return nil, err
		}
	}
}

// plausible refuses by the first bytes what is no HTTP/1 request: TLS, SOCKS,
// the preface of HTTP/2, an empty line.
func plausible(data []byte) error {
	for i, c := range data {
		if c == ' ' && i > 0 {
			break
		}
		if !tokenByte(c) {
			return malformed("the bytes are no HTTP request")
		}
		if i >= maxMethod {
			return malformed("the method is too long")
		}
	}
	line, _, ended := bytes.Cut(data, []byte("\n"))
	if !ended {
		if len(line) > maxTarget+64 {
			return &syntaxError{status: http.StatusRequestURITooLong, why: "the request line is too long"}
		}
		return nil
	}
	// HTTP/0.9 ends here, and would wait for an answer.
	text, ok := strings.CutSuffix(string(line), "\r")
	if !ok {
		return malformed("the request line does not end in CR LF")
	}
	_, err := new(request).requestLine(text)
	return err
}

// parseHead reads a whole head.
func parseHead(head []byte) (*request, error) {
	lines, err := splitLines(head)
	if err != nil {
		return nil, err
	}
	r := &request{}
	target, err := r.requestLine(lines[0])
	if err != nil {
		return nil, err
	}
	if err := r.target(target); err != nil {
		return nil, err
	}
	if err := r.readFields(lines[1:]); err != nil {
		err.host = r.host
		return nil, err
	}
	return r, nil
}

// splitLines cuts a head at CR LF; a CR or LF anywhere else, and every other
// control character but the tab, is refused.
func splitLines(head []byte) ([]string, error) {
	text, ok := strings.CutSuffix(string(head), "\r\n\r\n")
	if !ok {
		return nil, malformed("the head has no end")
	}
	lines := strings.Split(text, "\r\n")
	for i, l := range lines {
		for j := range len(l) {
			switch c := l[j]; {
			case c == '\r' || c == '\n':
				return nil, malformed("a bare CR or LF in line %d", i+1)
			case c < ' ' && c != '\t' || c == 0x7f:
				return nil, malformed("a control character in line %d", i+1)
			}
		}
	}
	if len(lines)-1 > maxFields {
		return nil, &syntaxError{status: http.StatusRequestHeaderFieldsTooLarge, why: fmt.Sprintf("more than %d header fields", maxFields)}
	}
	return lines, nil
}

func (r *request) requestLine(line string) (target string, err error) {
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || method == "" || target == "" {
		return "", malformed("the request line is not METHOD TARGET HTTP/1.1")
	}
	if strings.ContainsAny(version, " \t") || strings.ContainsAny(target, "\t") {
		return "", malformed("white space in the request line")
	}
	for i := range len(target) {
		if target[i] >= 0x80 {
			return "", malformed("the target has bytes that are not ASCII")
		}
	}
	for i := range len(method) {
		if c := method[i]; (c < 'A' || c > 'Z') && c != '-' {
			return "", malformed("method %q (want capital letters)", method)
		}
	}
	if len(target) > maxTarget {
		return "", &syntaxError{status: http.StatusRequestURITooLong, why: "the target is too long"}
	}
	switch {
	case version == "HTTP/1.1":
		r.minor = 1
	case version == "HTTP/1.0":
	case len(version) == 8 && strings.HasPrefix(version, "HTTP/") && digit(version[5]) && version[6] == '.' && digit(version[7]):
		return "", &syntaxError{status: http.StatusHTTPVersionNotSupported, why: fmt.Sprintf("version %q (want HTTP/1.1)", version)}
	default:
		return "", malformed("version %q (want HTTP/1.1)", version)
	}
	switch method {
	case http.MethodConnect, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	case http.MethodTrace, "TRACK":
		return "", &syntaxError{status: http.StatusMethodNotAllowed, why: "method " + method + " is not passed on"}
	default:
		return "", &syntaxError{status: http.StatusNotImplemented, why: fmt.Sprintf("method %q is not known here", method)}
	}
	r.method = method
	return target, nil
}

// target reads "host:port" of CONNECT, or "http://host[:port][/path][?query]".
func (r *request) target(target string) error {
	authority := target
	if r.plain() {
		scheme, rest, ok := strings.Cut(target, "://")
		if !ok {
			return malformed("the target is no absolute URI (want http://host/path; the proxy has no pages of its own)")
		}
		if !strings.EqualFold(scheme, "http") {
			return malformed("scheme %q (want http, or CONNECT for TLS)", scheme)
		}
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		authority, r.path = rest[:end], rest[end:]
		if strings.ContainsAny(r.path, "\\#") {
			return malformed("the URI has characters that no request target has")
		}
		if !strings.HasPrefix(r.path, "/") {
			r.path = "/" + r.path
		}
	}
	host, port, err := authorityOf(authority)
	if err != nil {
		return &syntaxError{status: http.StatusBadRequest, why: err.Error(), host: authority}
	}
	r.host, r.port = host, port
	if port == 0 {
		if !r.plain() {
			return &syntaxError{status: http.StatusBadRequest, why: "the CONNECT target names no port", host: host}
		}
		r.port = 80
	}
	if r.name, err = Canonical(host); err != nil {
		return &syntaxError{status: http.StatusBadRequest, why: err.Error(), host: host}
	}
	return nil
}

// authorityOf splits "host[:port]" and admits only what a host is made of:
// letters, digits, '.', '-', '_', or an IPv6 address in brackets.
func authorityOf(s string) (host string, port uint16, err error) {
	inner := s
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", 0, fmt.Errorf("unclosed bracket in %q", s)
		}
		for _, c := range []byte(s[1:end]) {
			if !hexDigit(c) && c != ':' && c != '.' {
				return "", 0, fmt.Errorf("%q is no IPv6 address", s[:end+1])
			}
		}
		// In brackets an IPv4 address or a name means nothing.
		if !strings.Contains(s[1:end], ":") {
			return "", 0, fmt.Errorf("%q is no IPv6 address", s[:end+1])
		}
		inner = s[end+1:]
		if inner != "" && inner[0] != ':' {
			return "", 0, fmt.Errorf("text after the bracket of %q", s)
		}
	} else if strings.Count(s, ":") > 1 {
		return "", 0, fmt.Errorf("%q is no host and port (an IPv6 address stands in brackets)", s)
	}
	for _, c := range []byte(inner) {
		if !letter(c) && !digit(c) && c != '.' && c != '-' && c != '_' && c != ':' {
			return "", 0, fmt.Errorf("%q has characters that no host has", s)
		}
	}
	host, port, err = SplitHostPort(s)
	if err == nil && host == "" {
		err = errEmptyHost
	}
	return host, port, err
}

// readFields reads the header fields and what they say about the body.
func (r *request) readFields(lines []string) *syntaxError {
	var hosts, lengths, codings []string
	r.fields = make([]field, 0, len(lines))
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		if !ok || name == "" {
			return malformed("a header line without a name and a colon")
		}
		for i := range len(name) {
			if !tokenByte(name[i]) {
				return malformed("header name %q (folded lines and white space before the colon are refused)", name)
			}
		}
		f := field{name, strings.Trim(value, " \t")}
		switch strings.ToLower(name) {
		case "host":
			hosts = append(hosts, f.value)
		case "content-length":
			lengths = append(lengths, f.value)
		case "transfer-encoding":
			codings = append(codings, f.value)
		case "upgrade":
			if err := refuseHTTP2(f.value); err != nil {
				return err
			}
		case "http2-settings":
			return &syntaxError{status: http.StatusNotImplemented, why: "HTTP/2 is not spoken here"}
		case "expect":
			if !strings.EqualFold(f.value, "100-continue") {
				return &syntaxError{status: http.StatusExpectationFailed, why: "an Expect field that is not 100-continue"}
			}
			r.expect = r.minor == 1
		}
		r.fields = append(r.fields, f)
	}
	if err := r.hostField(hosts); err != nil {
		return err
	}
	r.keepOpen = r.minor == 1 && !r.connectionSays("close")
	return r.framing(lengths, codings)
}

func refuseHTTP2(upgrade string) *syntaxError {
	for word := range strings.SplitSeq(upgrade, ",") {
		word = strings.ToLower(strings.Trim(word, " \t"))
		if strings.HasPrefix(word, "h2") || strings.HasPrefix(word, "tls") || strings.HasPrefix(word, "http/") {
			return &syntaxError{status: http.StatusNotImplemented, why: "the upgrade is not spoken here"}
		}
	}
	return nil
}

// hostField holds the Host field equal to the target. HTTP/1.1 has exactly
// one; a proxy could overwrite another one, but a client that names two hosts
// has something to hide.
func (r *request) hostField(hosts []string) *syntaxError {
	switch {
	case len(hosts) > 1:
		return malformed("more than one Host field")
	case len(hosts) == 0 && r.minor == 0:
		return nil
	case len(hosts) == 0:
		return malformed("no Host field")
	}
	host, port, err := authorityOf(hosts[0])
	if err != nil {
		return malformed("Host field: %v", err)
	}
	name, err := Canonical(host)
	if err != nil {
		return malformed("Host field: %v", err)
	}
	if port == 0 {
		port = r.port // of CONNECT, many clients leave it out
		if r.plain() {
			port = 80
		}
	}
	if name != r.name || port != r.port {
		return malformed("the Host field and the target disagree")
	}
	return nil
}

// framing reads how long the body is; every doubt is refused.
func (r *request) framing(lengths, codings []string) *syntaxError {
	switch {
	case len(lengths) > 1:
		return malformed("more than one Content-Length")
	case len(codings) > 1:
		return malformed("more than one Transfer-Encoding")
	case len(lengths) > 0 && len(codings) > 0:
		return malformed("Content-Length and Transfer-Encoding")
	case len(codings) == 1:
		if r.minor == 0 {
			return malformed("Transfer-Encoding in HTTP/1.0")
		}
		if !strings.EqualFold(codings[0], "chunked") {
			return &syntaxError{status: http.StatusNotImplemented, why: "a transfer coding other than chunked"}
		}
		r.chunked, r.length = true, -1
	case len(lengths) == 1:
		n, err := parseLength(lengths[0])
		if err != nil {
			return err
		}
		r.length = n
	}
	if !r.plain() && r.length != 0 {
		return malformed("a CONNECT with a body")
	}
	return nil
}

func parseLength(s string) (int64, *syntaxError) {
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, malformed("Content-Length %q (want digits)", s)
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || len(s) > 1 && s[0] == '0' {
		return 0, malformed("Content-Length %q (want a number without leading zeros)", s)
	}
	return n, nil
}

// connectionSays reports whether a Connection field lists the option.
func (r *request) connectionSays(option string) bool {
	for _, f := range r.fields {
		if !strings.EqualFold(f.name, "connection") && !strings.EqualFold(f.name, "proxy-connection") {
			continue
		}
		if listHas(f.value, option) {
			return true
		}
	}
	return false
}

func listHas(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(w, " \t"), word) {
			return true
		}
	}
	return false
}

func digit(c byte) bool    { return c >= '0' && c <= '9' }
func letter(c byte) bool   { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func hexDigit(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// tokenByte is tchar of RFC 9110.
func tokenByte(c byte) bool {
	return letter(c) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
