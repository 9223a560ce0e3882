package judge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxBody is the most that is read of a provider's response, in bytes.
const maxBody = 1 << 20

// HTTPClient is a client for adapters: responses are bounded, and redirects
// are not followed, since keys and calls go to the server that was named.
func HTTPClient() *http.Client {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    DefaultInFlight,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport: bounded{t},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the server redirects")
		},
	}
}

// bounded cuts responses.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxBody), resp.Body}
	}
	return resp, err
}

// StatusError is a provider's answer that is not a success.
type StatusError struct{ Status int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answered with status %d", e.Status)
}

// Opaque is what may be said of an error of a provider's library: such errors
// hold URLs, bodies, and with them calls and keys.
func Opaque(err error) error {
	var timeout net.Error
	var op *net.OpError
	var u *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &op):
		return fmt.Errorf("the server cannot be reached: %s: %w", op.Op, op.Err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return ErrTimeout
	case errors.As(err, &u):
		return errors.New("the server cannot be reached, or redirects")
	}
	return errors.New("the answer cannot be read")
}

// ErrIncomplete is returned by adapters for an answer that the model did not
// finish, or refused to give: it says nothing about the server.
var ErrIncomplete = unusable("it was refused or cut short")
