package protocol

import (
	"errors"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// WithAuth adds a credential, such as "user:password" for the scheme "digest". It can be given
// several times. There is no SASL. Use TLS, because a password crosses the network as it is.
//
// New nodes then grant all permissions to the identities of these credentials and none to others
// (unless [WithACL] changes that). With client certificates ([WithTLS]), the credential
// WithAuth("x509", nil) has the same effect. The scheme "ip" does not.
//
// The client computes the identity of a digest with SHA-1 (for another digestAlg use WithACL). For
// other schemes it asks the servers. Servers before ZooKeeper 3.7 can't answer: then [Connect]
// returns an error unless there is a WithACL.
//
// If the servers refuse the credential at first, Connect returns an error. If they refuse it later,
// the session tries other servers until it is lost. Then the client asks for further sessions.
// Meanwhile its state is [Lost], and the error of [Client.Session] says why.
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
