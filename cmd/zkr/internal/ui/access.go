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

// MinToken is how many characters a token must have.
const MinToken = 16

// Access says which requests are served.
//
// A page of another site can make a browser send requests here. With DNS rebinding it can even read
// the answers, as its name leads here then. So the Host of a request must be a name that no such
// site can have: an IP address, localhost, or one of Hosts. A request that says that it comes from
// another origin is refused.
type Access struct {
	Token string   // that a browser has to know; empty if none is asked for
	Hosts []string // names by which the page is reached, besides IP addresses and localhost
}

// IsLocal reports whether what listens at an address can be reached from this machine alone.
func IsLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address) //nolint:errcheck // a bad address has no host
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// guard serves what is permitted, and refuses the rest.
func (a Access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")

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

// policy lets the page use what is embedded here, and nothing else. Scripts cannot make elements
// out of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// isHost reports whether the Host of a request is one of ours.
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

// sameOrigin returns an error if a request says that it comes from the page of another origin. To
// open the page, a link on another one will do.
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

// known reports whether a request has the token, or the cookie that stands for it.
func (a Access) known(r *http.Request) bool {
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return a.isToken(given)
	}
	cookie, err := r.Cookie(a.cookieName())
	return err == nil && equal(cookie.Value, a.cookie())
}

func (a Access) isToken(given string) bool { return equal(given, a.Token) }

// equal compares in a time that does not depend on the texts, nor on their lengths.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// cookie returns what a browser keeps: not the token itself.
func (a Access) cookie() string { return a.derive("cookie of zkr ui") }

// cookieName differs between tokens. Browsers keep the cookies of all ports of a host together.
func (a Access) cookieName() string { return "zkr_ui_" + a.derive("name")[:8] }

// derive returns what tells nothing of the token.
func (a Access) derive(purpose string) string {
	mac := hmac.New(sha256.New, []byte(a.Token))
	mac.Write([]byte(purpose))
	return hex.EncodeToString(mac.Sum(nil))
}

// logIn serves a browser that has not shown the token yet. It gets a cookie for the token, which is
// sent by the form of the page, or is in the address of the first visit.
func (a Access) logIn(w http.ResponseWriter, r *http.Request) {
	given := ""
	switch {
	case r.URL.Path == "/style.css" || r.URL.Path == "/icon.svg": // which the form needs
		serveFile(w, r, strings.TrimPrefix(r.URL.Path, "/"), http.StatusOK)
		return
	case r.URL.Path == "/login" && r.Method == http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, 4096)
		given = r.PostFormValue("token")
	case r.URL.Path == "/" && r.Method == http.MethodGet:
		given = r.URL.Query().Get("token")
	}

	if given != "" && a.isToken(given) {
		http.SetCookie(w, &http.Cookie{
			Name: a.cookieName(), Value: a.cookie(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.Header.Get("X-Forwarded-Proto") == "https", // of a proxy
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
