package ui

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// MinToken is the least length of a token.
const MinToken = 16

// Access says which requests are served.
//
// A page of another site can make a browser send requests here. With DNS rebinding it can even read
// the answers, because its name then leads here. So the Host of a request must be a name that no
// such site can have: an IP address, localhost or one of Hosts. Requests with the Origin of another
// page are refused.
type Access struct {
	Token string   // the secret that a browser must know; empty if there is none
	Hosts []string // more names of the page, besides IP addresses and localhost
}

// IsLocal reports whether only this machine can reach a listener at an address.
func IsLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address) //nolint:errcheck // a bad address has no host
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// guard serves permitted requests and refuses the rest.
func (a Access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")

		// Check the name first: with DNS rebinding, a foreign page has our origin.
		if !a.isHost(r.Host) {
			http.Error(w, "this name is not known here: start zkr ui with --host and the name", http.StatusMisdirectedRequest)
			return
		}

		if err := sameOrigin(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}

		if a.Token != "" && !a.known(r) {
			a.logIn(w, r)
			return
		}

		next.ServeHTTP(w, r)
	})
}

// policy lets the page use only the embedded files. Scripts can't turn text into elements.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// isHost reports whether the Host of a request is a name of this page.
func (a Access) isHost(hostPort string) bool {
	host := hostPort
	if name, _, err := net.SplitHostPort(hostPort); err == nil {
		host = name
	}

	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if net.ParseIP(strings.Trim(host, "[]")) != nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(a.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// sameOrigin returns an error if a request comes from the page of another origin. A link from
// another page can still open this page.
func sameOrigin(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return fmt.Errorf("a page of %q may not use this one", origin)
		}
	}

	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		if r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return fmt.Errorf("a page of another site may not use this one (%q)", site)
		}
	}
	return nil
}

// known reports whether a request has the token or its cookie.
func (a Access) known(r *http.Request) bool {
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return equal(given, a.Token)
	}
	cookie, err := r.Cookie(a.cookieName())
	return err == nil && equal(cookie.Value, a.cookie())
}

// equal compares two texts in a time that doesn't depend on them or on their lengths.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// cookie returns the cookie for the token. It doesn't contain the token.
func (a Access) cookie() string { return a.derive("cookie of zkr ui") }

// cookieName differs between tokens because browsers mix the cookies of all ports of a host.
func (a Access) cookieName() string { return "zkr_ui_" + a.derive("name")[:8] }

// derive returns a text that depends on the token but doesn't reveal it.
func (a Access) derive(purpose string) string {
	mac := hmac.New(sha256.New, []byte(a.Token))
	mac.Write([]byte(purpose))
	return hex.EncodeToString(mac.Sum(nil))
}

// logIn serves a browser that has not shown the token yet. The token comes from the form of the
// page or from the address of the first visit. The browser then gets a cookie.
func (a Access) logIn(w http.ResponseWriter, r *http.Request) {
	given := ""
	switch {
	case r.URL.Path == "/style.css" || r.URL.Path == "/icon.svg": // the form needs these
		serveFile(w, r, strings.TrimPrefix(r.URL.Path, "/"), http.StatusOK)
		return
	case r.URL.Path == "/login" && r.Method == http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, 4096)
		given = r.PostFormValue("token")
	case r.URL.Path == "/" && r.Method == http.MethodGet:
		given = r.URL.Query().Get("token")
	}

	if given != "" && equal(given, a.Token) {
		http.SetCookie(w, &http.Cookie{
			Name: a.cookieName(), Value: a.cookie(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.Header.Get("X-Forwarded-Proto") == "https", // a proxy says so
		})

		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}

	w.Header().Set("WWW-Authenticate", "Bearer")
	w.Header().Set("Connection", "close")
	if r.URL.Path != "/" && r.URL.Path != "/login" {
		http.Error(w, "a token is needed: Authorization: Bearer, or the cookie of a visit", http.StatusUnauthorized)
		return
	}
	serveFile(w, r, "login.html", http.StatusUnauthorized)
}
