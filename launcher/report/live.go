package report

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Live serves the page of a running job. Its address has a token that cannot be guessed, and
// requests without the token get no answer.
type Live struct {
	URL string

	server http.Server
	token  string
	make   func() (*Report, error)

	mu   sync.Mutex
	last *Report
	at   time.Time
	age  time.Duration // from which last is made anew
}

// Serve serves the reports that make returns on address, "host:port" or ":port". With ":port" only
// this machine can reach it.
func Serve(address string, make func() (*Report, error)) (*Live, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: give :PORT for this machine alone, or HOST:PORT", address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	l := &Live{token: rand.Text(), make: make, age: time.Second}
	l.URL = fmt.Sprintf("http://%s/%s/", listener.Addr(), l.token)
	l.server.Handler = l
	l.server.ReadTimeout, l.server.WriteTimeout = 10*time.Second, 30*time.Second
	go func() {
		if err := l.server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			_ = listener.Close() // the job goes on without a page
		}
	}()
	return l, nil
}

// Close ends the service.
func (l *Live) Close() error { return l.server.Close() }

// ServeHTTP implements http.Handler.
func (l *Live) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	token, file, ok := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(l.token)) != 1 || file != "" && file != "data.json" {
		http.NotFound(w, request)
		return
	}
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
		return
	}
	r, err := l.report()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if file == "" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
		_ = r.Write(w) // it fails only if the reader is gone
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(r)
}

// report returns a report that is at most l.age old.
func (l *Live) report() (*Report, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || time.Since(l.at) > l.age {
		r, err := l.make()
		if err != nil {
			return nil, err
		}
		r.Live = true
		l.last, l.at = r, time.Now()
	}
	return l.last, nil
}
