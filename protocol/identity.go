package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// WithAuth adds a credential, such as "user:password" for the scheme "digest". The client sends it
// first on every connection of every session. WithAuth may be given several times.
//
// New nodes then grant all permissions to the client's identities, and none to others: see
// [WithACL], which changes that. With client certificates, which [WithTLS] presents, WithAuth
// without a credential, as in WithAuth("x509", nil), has the same effect. The scheme "ip" does not,
// as an address is no proof.
//
// A password of the scheme "digest" crosses the network as it is: use TLS. The client never puts it
// into a log, an event or an error. There is no SASL: WithAuth returns an error that says so.
//
// If the servers refuse the credential at first, [Connect] returns an error. If they refuse it
// later, a session that has a connection tries other servers until it is lost. The client then asks
// for further sessions, at intervals of the session timeout. Meanwhile its state is [Lost], the
// logger gets a warning for each attempt, and the error of [Client.Session] says why.
func WithAuth(scheme string, auth []byte) ConnectOption {
	return connectOption(func(c *Client) error {
		switch {
		case scheme == "":
			return errors.New("empty auth scheme")
		case strings.EqualFold(scheme, "sasl"):
			return errors.New("auth sasl: the ZooKeeper client has no SASL: use digest, or client certificates and x509")
		}
		c.auth = append(c.auth, newCredential(scheme, auth))
		return nil
	})
}

// A secret returns bytes that nothing may show. Package fmt, reflection and encoders see a
// function.
type secret func() []byte

func secretOf(b []byte) secret {
	b = bytes.Clone(b)
	return func() []byte { return b }
}

// A credential is what WithAuth was given.
type credential struct {
	scheme string
	user   string // empty if the scheme has none
	secret secret
}

func newCredential(scheme string, auth []byte) credential {
	c := credential{scheme: scheme, secret: secretOf(auth)}
	if user, _, found := strings.Cut(string(auth), ":"); found && scheme == "digest" {
		c.user = user
	}
	return c
}

// identifies reports whether the server takes the credential for a proof of identity.
func (c credential) identifies() bool { return c.scheme != "ip" && c.scheme != "ensemble" }

// identity returns what may be shown of the credential, as in digest:alice.
func (c credential) identity() string {
	if c.user == "" {
		return c.scheme
	}
	return fmt.Sprintf("%s:%s", c.scheme, strings.Trim(fmt.Sprintf("%q", c.user), `"`))
}

// String returns the servers and as whom the client acts, without secrets, as in
// "zk1:2181,zk2:2181/app as digest:alice".
func (c *Client) String() string {
	return strings.Join(c.servers, ",") + c.chroot + " as " + c.identities()
}

// String returns the ID of the session, as servers write it.
func (s *Session) String() string { return fmt.Sprintf("session %#x", uint64(s.ID())) }

// identities returns as whom the client acts: schemes and user names, without secrets.
func (c *sessions) identities() string {
	if len(c.auth) == 0 {
		return "world:anyone"
	}
	all := make([]string, len(c.auth))
	for i, a := range c.auth {
		all[i] = a.identity()
	}
	return strings.Join(all, ", ")
}
