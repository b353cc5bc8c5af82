package conn

import (
	"bytes"
	"fmt"
	"strings"
)

// A secret returns bytes that must never be printed. Package fmt, reflection and encoders see only
// a function.
type secret func() []byte

func secretOf(b []byte) secret {
	b = bytes.Clone(b)
	return func() []byte { return b }
}

// A Credential holds the arguments of WithAuth.
type Credential struct {
	Scheme string
	user   string // empty if the scheme has none
	secret secret
}

// NewCredential returns a credential for a scheme.
func NewCredential(scheme string, auth []byte) Credential {
	c := Credential{Scheme: scheme, secret: secretOf(auth)}
	if user, _, found := strings.Cut(string(auth), ":"); found && scheme == "digest" {
		c.user = user
	}
	return c
}

// Identifies reports whether the server accepts the credential as proof of identity.
func (c Credential) Identifies() bool { return c.Scheme != "ip" && c.Scheme != "ensemble" }

// String returns the part that may be shown (digest:alice, for example).
func (c Credential) String() string {
	if c.user == "" {
		return c.Scheme
	}
	return fmt.Sprintf("%s:%s", c.Scheme, strings.Trim(fmt.Sprintf("%q", c.user), `"`))
}

// Secret returns the proof of identity.
func (c Credential) Secret() []byte { return c.secret() }
