-- The name that an account had, while its texts are being erased: the digests of its leaves are made with
-- it. No view shows it. (On PostgreSQL this version also checks what the service's role may insert.)
ALTER TABLE erasing_accounts ADD COLUMN subject text;
