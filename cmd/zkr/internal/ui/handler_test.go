package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

// each runs a test on the embedded server and on a real one. There is no bubble around it: browsers
// come over TCP.
func each(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Run("embedded", func(t *testing.T) { test(t, recipestest.Start(t)) })
	t.Run("real", func(t *testing.T) { test(t, suite.Real(t)) })
}

const token = "0123456789abcdef"

// start serves a hub until the test ends. edit may change its configuration.
func start(t *testing.T, c *protocol.Client, path string, access Access, edit func(*Config)) *httptest.Server {
	t.Helper()
	config := Config{Client: c, Path: path, Interval: 50 * time.Millisecond, Idle: 100 * time.Millisecond, Rate: 1000, Limit: 100}
	if edit != nil {
		edit(&config)
	}
	hub := NewHub(config)
	ctx, cancel := context.WithCancel(context.Background())
	done := suite.Later(func() struct{} { hub.Run(ctx); return struct{}{} })
	server := httptest.NewServer(hub.Handler(access))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		suite.Wait(t, done)
	})
	return server
}

func newClient(t *testing.T, srv *recipestest.Server) *protocol.Client {
	c := srv.Client(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// request sends a request and returns the status, without following a redirection.
func request(t *testing.T, method, address string, header map[string]string, body string) *http.Response {
	t.Helper()
	r := suite.Got(http.NewRequestWithContext(suite.Lasting(t), method, address, strings.NewReader(body)))(t)
	for name, value := range header {
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer := suite.Got(transport.RoundTrip(r))(t)
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func TestPageIsGuarded(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	c := newClient(t, srv)
	open := start(t, c, "/", Access{Hosts: []string{"zk.example"}}, nil)
	port := open.URL[strings.LastIndex(open.URL, ":"):]
	for name, test := range map[string]struct {
		path   string
		header map[string]string
		status int
	}{
		"page":                          {path: "/", status: 200},
		"script":                        {path: "/app.js", status: 200},
		"none":                          {path: "/ui.go", status: 404},
		"below":                         {path: "/page/index.html", status: 404},
		"localhost":                     {path: "/", header: map[string]string{"Host": "localhost:80"}, status: 200},
		"IPv6":                          {path: "/", header: map[string]string{"Host": "[::1]" + port}, status: 200},
		"a name of ours":                {path: "/", header: map[string]string{"Host": "ZK.example"}, status: 200},
		"a name that was bound anew":    {path: "/", header: map[string]string{"Host": "evil.example" + port}, status: 421},
		"a name that ends like ours":    {path: "/", header: map[string]string{"Host": "localhost.evil.example"}, status: 421},
		"its events":                    {path: "/events", header: map[string]string{"Host": "evil.example"}, status: 421},
		"another origin":                {path: "/events", header: map[string]string{"Origin": "http://evil.example"}, status: 403},
		"another port of ours":          {path: "/events", header: map[string]string{"Origin": "http://127.0.0.1:1"}, status: 403},
		"no origin":                     {path: "/events", header: map[string]string{"Origin": "null"}, status: 403},
		"another site":                  {path: "/app.js", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, status: 403},
		"a link on another site":        {path: "/", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, status: 200},
		"a deed that is not allowed":    {path: "/deed", status: 404},
		"a token that is not asked for": {path: "/?token=x", status: 303},
	} {
		t.Run(name, func(t *testing.T) {
			answer := request(t, http.MethodGet, open.URL+test.path, test.header, "")
			require.Equal(t, test.status, answer.StatusCode)
			policy := answer.Header.Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'")
			require.Contains(t, policy, "script-src 'self';")
			require.Contains(t, policy, "require-trusted-types-for 'script'")
			require.Contains(t, policy, "frame-ancestors 'none';")
			require.NotContains(t, policy, "unsafe")
			require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
		})
	}
}

func TestTokenIsNeeded(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	server := start(t, newClient(t, srv), "/", Access{Token: token}, nil)
	bearer := func(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }
	for path, status := range map[string]int{
		"/": 401, "/app.js": 401, "/events": 401, "/?token=wrong": 401, "/events?token=" + token: 401, "/style.css": 200, "/icon.svg": 200,
	} {
		require.Equal(t, status, request(t, http.MethodGet, server.URL+path, nil, "").StatusCode, path)
	}
	for _, wrong := range []string{"", token[1:], token + "0", strings.ToUpper(token)} {
		require.Equal(t, 401, request(t, http.MethodGet, server.URL+"/app.js", bearer(wrong), "").StatusCode)
	}
	require.Equal(t, 200, request(t, http.MethodGet, server.URL+"/app.js", bearer(token), "").StatusCode)

	// A visit with the token leaves a cookie, and the token does not stay in the address.
	for name, visit := range map[string]func(*http.Client) (*http.Response, error){
		"address": func(c *http.Client) (*http.Response, error) { return c.Get(server.URL + "/?token=" + token) },
		"form": func(c *http.Client) (*http.Response, error) {
			return c.PostForm(server.URL+"/login", url.Values{"token": {token}})
		},
	} {
		jar := suite.Got(cookiejar.New(nil))(t)
		browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
		answer := suite.Got(visit(browser))(t)
		answer.Body.Close()
		require.Equal(t, 200, answer.StatusCode, name)
		require.Equal(t, server.URL+"/", answer.Request.URL.String())
		answer = suite.Got(browser.Get(server.URL + "/app.js"))(t)
		answer.Body.Close()
		require.Equal(t, 200, answer.StatusCode)
	}

	answer := request(t, http.MethodGet, server.URL+"/?token="+token, nil, "")
	cookie := answer.Cookies()[0]
	require.True(t, cookie.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	require.NotContains(t, cookie.Value, token)
	require.False(t, cookie.Secure)
	proxied := request(t, http.MethodGet, server.URL+"/?token="+token, map[string]string{"X-Forwarded-Proto": "https"}, "")
	require.True(t, proxied.Cookies()[0].Secure)
	for value, status := range map[string]int{cookie.Value: 200, token: 401, cookie.Value[1:]: 401, "": 401} {
		header := map[string]string{"Cookie": cookie.Name + "=" + value}
		require.Equal(t, status, request(t, http.MethodGet, server.URL+"/app.js", header, "").StatusCode)
	}
	form := request(t, http.MethodPost, server.URL+"/login", map[string]string{
		"Origin": "http://evil.example", "Content-Type": "application/x-www-form-urlencoded",
	}, "token="+token)
	require.Equal(t, 403, form.StatusCode, "a browser is not logged in by another site")
}

func TestDeedsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	path := srv.Root(t) + "/lock"
	lease := suite.Must(t, lock.New(newClient(t, srv), path).Lock)
	deeds := make(chan Deed, 10)
	var answer error
	server := start(t, newClient(t, srv), path, Access{}, func(c *Config) {
		c.Break = func(_ context.Context, d Deed) error { deeds <- d; return answer }
	})

	m := listen(t, server, nil).all()
	require.True(t, m.Reset.CanBreak)
	row := m.Set[0]
	body := func(verb, row, contender string) string {
		return fmt.Sprintf(`{"verb":%q,"row":%q,"contender":%q,"reason":"node of me"}`, verb, row, contender)
	}
	good := body("break", row.ID, row.Contenders[0].ID)
	with := func(more ...string) map[string]string {
		header := map[string]string{"Zkr-Key": m.Reset.Key, "Origin": server.URL, "Content-Type": "application/json"}
		for i := 0; i < len(more); i += 2 {
			header[more[i]] = more[i+1]
		}
		return header
	}
	for name, test := range map[string]struct {
		header map[string]string
		body   string
		status int
	}{
		"no key":            {with("Zkr-Key", ""), good, 403},
		"another key":       {with("Zkr-Key", m.Reset.Key[1:]), good, 403},
		"another origin":    {with("Origin", "http://evil.example"), good, 403},
		"another site":      {with("Sec-Fetch-Site", "same-site"), good, 403},
		"a navigation":      {with("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"), good, 403},
		"another host":      {with("Host", "evil.example"), good, 421},
		"malformed":         {with(), "{", 400},
		"another verb":      {with(), body("steal", row.ID, row.Contenders[0].ID), 400},
		"no such row":       {with(), body("break", "x", row.Contenders[0].ID), 409},
		"no such contender": {with(), body("break", row.ID, "x"), 409},
		"too long":          {with(), body("break", strings.Repeat("x", 5000), "x"), 400},
	} {
		require.Equal(t, test.status, request(t, http.MethodPost, server.URL+"/deed", test.header, test.body).StatusCode, name)
	}
	require.Equal(t, 404, request(t, http.MethodGet, server.URL+"/deed", with(), "").StatusCode)
	require.Empty(t, deeds)

	require.Equal(t, 204, request(t, http.MethodPost, server.URL+"/deed", with("Sec-Fetch-Site", "same-origin"), good).StatusCode)
	d := <-deeds
	require.Equal(t, "break", d.Verb)
	require.Equal(t, path, d.Path)
	require.Equal(t, lease.Node(), d.Node)
	require.Equal(t, "node of me", d.Reason)
	after := listen(t, server, nil).all()
	require.Equal(t, "break", after.Events[0].Kind)
	require.Equal(t, d.Who, after.Events[0].From)
	answer = ErrGone
	require.Equal(t, 409, request(t, http.MethodPost, server.URL+"/deed", with(), good).StatusCode)
	answer = errors.New("no \x1b[2J")
	require.Equal(t, 502, request(t, http.MethodPost, server.URL+"/deed", with(), good).StatusCode)
}

// told is a message as a browser gets it.
type told struct {
	message
	id  string
	Set []row `json:"set"`
}

// A stream is a browser's.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  func()
}

// listen opens the stream of events.
func listen(t *testing.T, server *httptest.Server, header map[string]string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(suite.Lasting(t))
	r := suite.Got(http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil))(t)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer := suite.Got((&http.Transport{DisableKeepAlives: true}).RoundTrip(r))(t)
	require.Equal(t, 200, answer.StatusCode)
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	stop := func() { cancel(); answer.Body.Close() }
	t.Cleanup(stop)
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<22)
	return &stream{t, lines, stop}
}

// next returns the next change, and checks how it is framed.
func (s *stream) next() (m told) {
	s.t.Helper()
	fields := make(map[string]string)
	for s.lines.Scan() {
		line := s.lines.Text()
		if line != "" {
			name, value, ok := strings.Cut(line, ": ")
			require.True(s.t, ok, line)
			require.Empty(s.t, fields[name], "one of each")
			fields[name] = value
			continue
		}
		if fields["event"] == "change" {
			require.NotEmpty(s.t, fields["id"])
			m.id = fields["id"]
			require.NoError(s.t, json.Unmarshal([]byte(fields["data"]), &m))
			return m
		}
		require.Equal(s.t, "beat", fields["event"])
		fields = make(map[string]string)
	}
	require.FailNow(s.t, "the stream has ended", "%v", s.lines.Err())
	return m
}

// all returns all that there is when the tree has been read.
func (s *stream) all() told {
	s.t.Helper()
	m := s.next()
	require.NotNil(s.t, m.Reset)
	for !m.Ready {
		next := s.next()
		next.Reset = m.Reset
		m = next
	}
	return m
}

// await returns the first change that is as it should be.
func (s *stream) await(is func(told) bool) told {
	s.t.Helper()
	for {
		if m := s.next(); is(m) {
			return m
		}
	}
}
