package protocol

import (
	"errors"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// WithAuth adds a credential, such as "user:password" for the scheme "digest". The client sends it
// first on every connection of every session. WithAuth may be given several times.
//
// New nodes then grant all permissions to the identities of these credentials, and none to others:
// see [WithACL], which changes that. With client certificates, which [WithTLS] presents, WithAuth
// without a credential, as in WithAuth("x509", nil), has the same effect. The scheme "ip" does not,
// as an address is no proof.
//
// The identity of a digest is computed. That takes SHA-1, as servers do by default. For another
// digestAlg use WithACL. Which identity a credential of another scheme is, the servers are asked.
// They know since ZooKeeper 3.7. With earlier ones [Connect] returns an error, unless WithACL makes
// the question unnecessary.
//
// A password of the scheme "digest" crosses the network as it is: use TLS. The client never puts it
// into a log, an event or an error. There is no SASL: WithAuth returns an error that says so.
//
// If the servers refuse the credential at first, [Connect] returns an error. If they refuse it
// later, a session that has a connection tries other servers until it is lost. The client then asks
// for further sessions, at intervals of the session timeout. Meanwhile its state is [Lost], the
// logger gets a warning for each attempt, and the error of [Client.Session] says why.
func WithAuth(scheme string, auth []byte) ConnectOption {
	return connectOption(func(c *session.Client) error {
		switch {
		case scheme == "":
			return errors.New("empty auth scheme")
		case strings.EqualFold(scheme, "sasl"):
			return errors.New("auth sasl: the ZooKeeper client has no SASL: use digest, or client certificates and x509")
		}
		c.Credentials = append(c.Credentials, conn.NewCredential(scheme, auth))
		return nil
	})
}
