package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

// newRootCommand returns zkr with all its commands. Each command has a file of its own.
func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "zkr",
		Short:         "ZooKeeper recipes on the command line",
		Long:          rootHelp,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.began = true
			return a.check()
		},
	}
	a.addFlags(root.PersistentFlags())

	root.AddCommand(newBarrierCommand(a))
	root.AddCommand(newBreakCommand(a))
	root.AddCommand(newDoctorCommand(a))
	root.AddCommand(newElectCommand(a))
	root.AddCommand(newGroupCommand(a))
	root.AddCommand(newLeaderCommand(a))
	root.AddCommand(newLockCommand(a))
	root.AddCommand(newOnceCommand(a))
	root.AddCommand(newPsCommand(a))
	root.AddCommand(newQueueCommand(a))
	root.AddCommand(newRevokeCommand(a))
	root.AddCommand(newSemaphoreCommand(a))
	root.AddCommand(newServerCommand(a))
	root.AddCommand(newUICommand(a))
	return root
}

const rootHelp = `zkr holds locks around commands, and shows who holds what, in ZooKeeper.

  zkr --servers zk1:2181,zk2:2181,zk3:2181/app lock /locks/backup -- ./backup.sh

A command that runs another one returns its exit status. Its own are

   64  usage: the command line is wrong; nothing was done
   69  unreachable: no server has answered
   70  failed: any other error
   75  busy: what is asked for is taken, and waiting was not asked for
   76  lost: what was held was lost, and the command was ended
   77  refused: an ACL, or a credential that the servers do not accept
  124  timed out: --wait has passed
  126  the command cannot be run
  127  the command was not found
  128+n  the command was ended by signal n`

// version returns the version of the module that this binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
