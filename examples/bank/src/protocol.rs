//! The messages: one line of text each, a word and its arguments.

use std::fmt::{self, Display};
use std::str::{FromStr, SplitWhitespace};

use crate::bank::{Account, Money};

/// What clients ask of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Answered by `ok` or `refused`.
    Transfer {
        from: Account,
        to: Account,
        amount: Money,
    },
    /// "I have no more transfers": answered by `ok` once all of them are on the books.
    Finish,
    /// Answered by `total`.
    Audit,
}

/// What the coordinator answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ok,
    /// The account to be debited does not hold enough.
    Refused,
    Total(Money),
}

/// What the coordinator asks of an account server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountRequest {
    /// Answered by `balance`.
    Get(Account),
    /// Answered by `done`.
    Set(Account, Money),
    /// Answered by `sum`.
    Sum,
    /// The bank closes: the server ends. Not answered.
    Close,
}

/// What an account server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountReply {
    Balance(Account, Money),
    Done,
    Sum(Money),
}

impl Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Transfer { from, to, amount } => write!(f, "transfer {from} {to} {amount}"),
            Request::Finish => write!(f, "finish"),
            Request::Audit => write!(f, "audit"),
        }
    }
}

impl FromStr for Request {
    type Err = String;

    fn from_str(line: &str) -> Result<Request, String> {
        parse(line, |word, arguments| {
            Ok(Some(match word {
                "transfer" => Request::Transfer {
                    from: arguments.next()?,
                    to: arguments.next()?,
                    amount: arguments.next()?,
                },
                "finish" => Request::Finish,
                "audit" => Request::Audit,
                _ => return Ok(None),
            }))
        })
    }
}

impl Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Ok => write!(f, "ok"),
            Reply::Refused => write!(f, "refused"),
            Reply::Total(total) => write!(f, "total {total}"),
        }
    }
}

impl FromStr for Reply {
    type Err = String;

    fn from_str(line: &str) -> Result<Reply, String> {
        parse(line, |word, arguments| {
            Ok(Some(match word {
                "ok" => Reply::Ok,
                "refused" => Reply::Refused,
                "total" => Reply::Total(arguments.next()?),
                _ => return Ok(None),
            }))
        })
    }
}

impl Display for AccountRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountRequest::Get(account) => write!(f, "get {account}"),
            AccountRequest::Set(account, balance) => write!(f, "set {account} {balance}"),
            AccountRequest::Sum => write!(f, "sum"),
            AccountRequest::Close => write!(f, "close"),
        }
    }
}

impl FromStr for AccountRequest {
    type Err = String;

    fn from_str(line: &str) -> Result<AccountRequest, String> {
        parse(line, |word, arguments| {
            Ok(Some(match word {
                "get" => AccountRequest::Get(arguments.next()?),
                "set" => AccountRequest::Set(arguments.next()?, arguments.next()?),
                "sum" => AccountRequest::Sum,
                "close" => AccountRequest::Close,
                _ => return Ok(None),
            }))
        })
    }
}

impl Display for AccountReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountReply::Balance(account, balance) => write!(f, "balance {account} {balance}"),
            AccountReply::Done => write!(f, "done"),
            AccountReply::Sum(sum) => write!(f, "sum {sum}"),
        }
    }
}

impl FromStr for AccountReply {
    type Err = String;

    fn from_str(line: &str) -> Result<AccountReply, String> {
        parse(line, |word, arguments| {
            Ok(Some(match word {
                "balance" => AccountReply::Balance(arguments.next()?, arguments.next()?),
                "done" => AccountReply::Done,
                "sum" => AccountReply::Sum(arguments.next()?),
                _ => return Ok(None),
            }))
        })
    }
}

/// The words of a line after the first.
struct Arguments<'a>(SplitWhitespace<'a>);

impl Arguments<'_> {
    fn next<T: FromStr<Err: Display>>(&mut self) -> Result<T, String> {
        let word = self.0.next().ok_or("an argument is missing")?;
        word.parse().map_err(|error| format!("`{word}`: {error}"))
    }
}

/// Parses a whole line. `message` makes a message of the first word and the arguments it takes, or
/// says `None` if there is no message of that name.
fn parse<M>(
    line: &str,
    message: impl FnOnce(&str, &mut Arguments) -> Result<Option<M>, String>,
) -> Result<M, String> {
    let mut words = line.split_whitespace();
    let word = words.next().ok_or("an empty line")?;
    let mut arguments = Arguments(words);
    let message = message(word, &mut arguments)
        .and_then(|message| message.ok_or_else(|| "no such message".to_string()))
        .map_err(|error| format!("`{line}`: {error}"))?;
    match arguments.0.next() {
        None => Ok(message),
        Some(extra) => Err(format!("`{line}`: `{extra}` is one argument too many")),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn account(number: u32) -> Account {
        Account::new(number).expect("an account of this bank")
    }

    fn reads_and_writes<M>(line: &str, message: M)
    where
        M: FromStr<Err = String> + Display + Debug + PartialEq,
    {
        assert_eq!(message.to_string(), line);
        assert_eq!(line.parse(), Ok(message));
    }

    #[test]
    fn every_message_reads_as_it_was_written() {
        reads_and_writes(
            "transfer 4 17 25",
            Request::Transfer {
                from: account(4),
                to: account(17),
                amount: 25,
            },
        );
        reads_and_writes("finish", Request::Finish);
        reads_and_writes("audit", Request::Audit);

        reads_and_writes("ok", Reply::Ok);
        reads_and_writes("refused", Reply::Refused);
        reads_and_writes("total 3000", Reply::Total(3000));

        reads_and_writes("get 4", AccountRequest::Get(account(4)));
        reads_and_writes("set 4 75", AccountRequest::Set(account(4), 75));
        reads_and_writes("sum", AccountRequest::Sum);
        reads_and_writes("close", AccountRequest::Close);

        reads_and_writes("balance 4 75", AccountReply::Balance(account(4), 75));
        reads_and_writes("done", AccountReply::Done);
        reads_and_writes("sum -3", AccountReply::Sum(-3));
    }

    #[track_caller]
    fn refuses<M: FromStr<Err = String> + Debug>(line: &str, because: &str) {
        let error = line.parse::<M>().expect_err("should not parse");
        assert!(error.contains(because), "{error}");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        refuses::<Request>("", "empty line");
        refuses::<Request>("  ", "empty line");
        refuses::<Request>("steal 4 17 25", "no such message");
        refuses::<Request>("transfer 4 17", "an argument is missing");
        refuses::<Request>("transfer 4 17 25 1", "`1` is one argument too many");
        refuses::<Request>("transfer 4 17 much", "`much`");
        refuses::<AccountRequest>("get", "an argument is missing");
        refuses::<AccountRequest>("get 28", "there is no account 28");
        refuses::<AccountRequest>("set 4 99999999999999999999", "too large");
        refuses::<AccountReply>("balance 4", "an argument is missing");
        refuses::<Reply>("ok then", "`then` is one argument too many");
    }
}
