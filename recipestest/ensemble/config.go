package ensemble

import (
	"fmt"
	"maps"
	"slices"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// An Option configures the servers that [Start] starts.
type Option func(*settings)

type settings struct {
	config    []string
	jvmFlags  []string
	files     map[string][]byte
	syncLimit int
	tls       bool
}

// WithConfig adds lines to every member's zoo.cfg. They come last and override the default lines.
// In them, {dir} means the directory of the files given to [WithFile].
func WithConfig(lines ...string) Option {
	return func(s *settings) { s.config = append(s.config, lines...) }
}

// WithJVMFlags adds flags to every member's java command (-Djute.maxbuffer=65536, for example).
// They are split at spaces.
func WithJVMFlags(flags ...string) Option {
	return func(s *settings) { s.jvmFlags = append(s.jvmFlags, flags...) }
}

// WithFile puts a file (a key store, for example) into every member's directory. In lines of
// [WithConfig], {dir} is that directory.
func WithFile(name string, data []byte) Option {
	return func(s *settings) { s.files[name] = data }
}

// WithSyncLimit sets the number of ticks, of half a second each, after which a follower and its
// leader give each other up. The default is 10.
func WithSyncLimit(ticks int) Option {
	return func(s *settings) { s.syncLimit = ticks }
}

// WithTLS makes every member listen for TLS too, at [Member.SecureConnectString]. certificateAndKey
// has the server's certificate and its PKCS #8 key as PEM blocks. If clientCAs (certificates in
// PEM) isn't empty, every client needs a certificate that one of them has signed.
func WithTLS(certificateAndKey, clientCAs []byte) Option {
	return func(s *settings) {
		s.tls = true
		s.files["tls.pem"] = certificateAndKey
		s.config = append(s.config,
			// Only the Netty factory speaks TLS.
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location={dir}/tls.pem",
			"ssl.keyStore.type=PEM",
		)

		if clientCAs == nil {
			s.config = append(s.config, "ssl.clientAuth=none")
			return
		}

		s.files["client-cas.pem"] = clientCAs
		s.config = append(s.config,
			"ssl.clientAuth=need",
			"ssl.trustStore.location={dir}/client-cas.pem",
			"ssl.trustStore.type=PEM",
		)
	}
}

func newSettings(opts []Option) *settings {
	s := &settings{files: make(map[string][]byte), syncLimit: 10}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// spec describes one server. The peer lines name the members of its ensemble. Without peers the
// server is standalone.
func (s *settings) spec(id int, at reach.Place, peers []string) launch.Spec {
	// A test's data needn't survive the machine.
	config := append(launch.Config(at.Bind, at.Client, s.syncLimit), "forceSync=no")
	ports := []int{at.Client, at.Quorum, at.Election}
	if s.tls {
		config = append(config, fmt.Sprintf("secureClientPort=%d", at.Secure), "secureClientPortAddress="+at.Bind)
		ports = append(ports, at.Secure)
	}

	jvmFlags := []string{"-Dznode.container.checkIntervalMs=1000"}
	return launch.Spec{
		ID:       id,
		Config:   slices.Concat(config, peers, s.config),
		JVMFlags: slices.Concat(jvmFlags, s.jvmFlags),
		Files:    maps.Clone(s.files),
		Ports:    ports,
	}
}
