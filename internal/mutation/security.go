package main

// Security: what identities, ACLs and the data of nodes are for.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "ACLs: nodes of a client that has a credential are open",
			File:    "protocol/acl.go",
			Old:     "return ownACL",
			New:     "return openACL",
			Package: "./internal/suite",
			Test:    "TestCredentialAloneMakesEveryNodeItsOwn/lock/embedded",
		},
		{
			Name:    "ACLs: the path that one is asked for has the chroot",
			File:    "protocol/session.go",
			Old:     "return node[len(s.client.chroot):]",
			New:     "return node",
			Package: "./internal/suite",
			Test:    "TestEveryNodeHasTheACLForItsPath/lock/embedded",
		},
		{
			Name:    "ACLs: an address counts as an identity",
			File:    "protocol/identity.go",
			Old:     `c.scheme != "ip" && `,
			New:     "",
			Package: "./internal/suite",
			Test:    "TestLastOptionForACLsCounts/embedded",
		},
		{
			Name:    "owner data: the reader that a writer becomes has none",
			File:    "rwlock/downgrade.go",
			Old:     "s.NodeData(l.mutex.read.Data)",
			New:     "l.mutex.read.Data",
			Package: "./internal/suite",
			Test:    "TestContendersSayWhereTheyRun/embedded",
		},
		{
			Name:    "owner data: those of the process stand for a candidate's empty value",
			File:    "election/election.go",
			Old:     "	if value == nil {",
			New:     "	if false {",
			Package: "./internal/suite",
			Test:    "TestCandidateWithoutValueHasNone/embedded",
		},
		{
			Name: "owner data: control characters get in",
			File: "protocol/process.go",
			Old:  "r == unicode.ReplacementChar || !unicode.IsPrint(r)",
			New:  "r == unicode.ReplacementChar",
			Test: "TestDataOfAProcessIsPrintable",
		},
		{
			Name:    "secrets: an error has a credential",
			File:    "protocol/client.go",
			Old:     `"auth %s: %w", a.identity(), err)`,
			New:     `"auth %s %s: %w", a.identity(), a.secret(), err)`,
			Package: "./internal/suite",
			Test:    "TestSecretsAreNeverShown",
		},
		{
			Name:    "refusals: what a read-only server refuses is not tried again",
			File:    "protocol/errors.go",
			Old:     "zkwire.CodeThrottled, zkwire.CodeReadOnly:",
			New:     "zkwire.CodeThrottled:",
			Package: "./internal/suite",
			Test:    "TestRefusalsThatMayPassAreTriedAgain",
		},
		{
			Name: "TLS: files are read once",
			File: "protocol/tls.go",
			Old:  "l.loaded != nil && slices.Equal(stamps, l.stamps)",
			New:  "l.loaded != nil && (true || slices.Equal(stamps, l.stamps))",
			Test: "TestTLSFilesAreReadAgainWhenTheyChange",
		},
		{
			Name: "TLS: each handshake warns of files that cannot be read",
			File: "protocol/tls.go",
			Old:  "case err.Error() != l.told:",
			New:  "case true:",
			Test: "TestTLSFilesAreReadAgainWhenTheyChange",
		},
		{
			Name: "TLS: files that cannot be read any more end all connections to come",
			File: "protocol/tls.go",
			Old:  "case l.loaded == nil:",
			New:  "case true:",
			Test: "TestTLSFilesAreReadAgainWhenTheyChange",
		},
	}...)
}
